"""The requests of vLLM-Omni's own demos, which show the word EMPTY for a key (speech_api §8)."""

import json

import httpx
import pytest
from websockets.sync.client import connect

from .conftest import Place

TEXT = "The quick brown fox jumps over the lazy dog."
HEADERS = {"Authorization": "Bearer EMPTY", "Content-Type": "application/json"}


def test_a_stream_of_pcm_at_the_native_rate_begins_before_its_end(anywhere: Place) -> None:
    body = {"input": TEXT, "voice": "default", "response_format": "pcm", "stream": True, "stream_format": "audio"}
    with httpx.stream("POST", f"{anywhere.v1}/audio/speech", headers=HEADERS, json=body, timeout=60) as answer:
        assert answer.status_code == 200
        assert "content-length" not in answer.headers
        pieces = list(answer.iter_raw())
    assert len(pieces) > 1
    assert answer.headers["x-sample-rate"] == "24000"
    assert sum(map(len, pieces)) % 2 == 0


def test_what_is_not_streamed_is_a_wav_unless_something_else_is_said(anywhere: Place) -> None:
    body = {"model": "hibari", "input": TEXT, "voice": "heart", "task_type": None, "language": "Auto"}
    answer = httpx.post(f"{anywhere.v1}/audio/speech", headers=HEADERS, json=body, timeout=60)
    assert answer.headers["content-type"] == "audio/wav"
    assert int.from_bytes(answer.content[40:44], "little") == len(answer.content) - 44
    assert int(answer.headers["x-vllm-omni-output-tokens"]) > 0


@pytest.mark.parametrize("path", ["/audio/voices", "/models"])
def test_its_lists_are_there(anywhere: Place, path: str) -> None:
    assert httpx.get(f"{anywhere.v1}{path}", headers=HEADERS, timeout=10).status_code == 200


def test_voices_are_names(anywhere: Place) -> None:
    listed = httpx.get(f"{anywhere.v1}/audio/voices", headers=HEADERS, timeout=10).json()
    assert listed["voices"] == sorted(listed["voices"])
    assert "heart" in listed["voices"]
    assert listed["uploaded_voices"] == []


def test_a_batch_is_answered_in_the_order_of_its_items(anywhere: Place) -> None:
    body = {"voice": "default", "response_format": "wav", "items": [{"input": "One."}, {"input": "Two."}]}
    answer = httpx.post(f"{anywhere.v1}/audio/speech/batch", headers=HEADERS, json=body, timeout=60).json()
    told = [(result["index"], result["media_type"]) for result in answer["results"]]
    assert told == [(0, "audio/wav"), (1, "audio/wav")]


def test_its_websocket_client_hears_every_sentence(anywhere: Place) -> None:
    heard, starts = bytearray(), []
    address = f"{anywhere.v1.replace('http', 'ws', 1)}/audio/speech/stream"
    with connect(address, additional_headers={"Authorization": "Bearer EMPTY"}, proxy=None) as socket:
        config = {"voice": "default", "response_format": "pcm", "stream_audio": True, "split_granularity": "sentence"}
        for message in (
            {"type": "session.config", **config},
            {"type": "input.text", "text": "Hello there. "},
            {"type": "input.text", "text": "How are you?"},
            {"type": "input.done"},
        ):
            socket.send(json.dumps(message))
        for message in socket:
            if isinstance(message, bytes):
                heard += message
                continue
            event = json.loads(message)
            if event["type"] == "audio.start":
                starts.append(event["sentence_text"])
            if event["type"] == "session.done":
                break
    assert starts == ["Hello there.", "How are you?"]
    assert len(heard) > 24_000
