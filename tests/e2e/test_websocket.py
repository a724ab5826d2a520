"""The WebSocket over a whole farm."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from websockets.sync.client import ClientConnection, connect

from speechmill.api.realtime.routes import ROUTE

from .harness import Farm, assert_same_pcm, eventually, samples

STORY = "The birch canoe slid on the smooth planks. Glue the sheet to the dark blue background. "
STAGES = ("prosody", "decoder", "finish")
STREAM = {"stream_audio": True, "response_format": "pcm"}
LONG = 60.0


class Client:
    """Says what the test wants, hears what the farm answers."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket

    def say(self, kind: str, **fields: Any) -> None:
        self._socket.send(json.dumps({"type": kind, **fields}))

    def hear(self) -> Any:
        message = self._socket.recv(LONG)
        return message if isinstance(message, bytes) else json.loads(message)

    def hear_until(self, kind: str) -> list[Any]:
        heard = [self.hear()]
        while not (isinstance(heard[-1], dict) and heard[-1]["type"] == kind):
            heard.append(self.hear())
        return heard

    def unit(self) -> tuple[dict[str, Any], bytes, int]:
        """The first message of one unit, its audio, and the number of messages that held it."""
        start, *audio, done = self.hear_until("audio.done")
        assert start["type"] == "audio.start"
        assert (done["error"], done["total_bytes"]) == (False, len(b"".join(audio)))
        return start, b"".join(audio), len(audio)


@pytest.fixture
def client(served: Farm) -> Iterator[Client]:
    with connect(f"{served.base.replace('http', 'ws')}{ROUTE}", max_size=None) as socket:
        yield Client(socket)


def idle(farm: Farm) -> bool:
    return not any(map(farm.leased, STAGES))


def test_sentences_are_spoken_while_the_text_is_still_written(client: Client) -> None:
    client.say("session.config", split_granularity="sentence", **STREAM)
    client.say("input.text", text="Hello there. How are")
    start, audio, _ = client.unit()
    assert (start["sentence_text"], start["sample_rate"], start["channels"]) == ("Hello there.", 24_000, 1)
    assert samples(audio).max() > 1000
    client.say("input.text", text=" you?")
    client.say("input.done")
    start, _, _ = client.unit()
    assert (start["utterance_index"], start["sentence_index"], start["sentence_text"]) == (0, 1, "How are you?")
    assert client.hear() == {"type": "session.done", "utterance_index": 0, "total_sentences": 2}


def test_a_socket_says_the_same_as_a_request_with_the_same_seed(served: Farm, client: Client) -> None:
    body = {"input": STORY, "seed": 3, "response_format": "pcm"}
    wanted = httpx.post(f"{served.base}/v1/audio/speech", json=body, timeout=LONG).content
    client.say("session.config", seed=3, **STREAM)
    client.say("input.text", text=STORY)
    client.say("input.done")
    _, audio, count = client.unit()
    assert count > 1
    assert_same_pcm(audio, wanted)
    client.hear_until("session.done")
    client.say("session.config", seed=3)
    client.say("input.text", text=STORY)
    client.say("input.done")
    start, file, count = client.unit()
    assert (start["utterance_index"], start["format"], count) == (1, "wav", 1)
    assert int.from_bytes(file[40:44], "little") == len(wanted)
    assert_same_pcm(file[44:], wanted)


@pytest.mark.parametrize(("audio_format", "magic"), [("mp3", b"\xff"), ("flac", b"fLaC"), ("opus", b"OggS")])
@pytest.mark.parametrize("streams", [True, False])
def test_every_format_is_served_streamed_and_whole(
    client: Client, audio_format: str, magic: bytes, streams: bool
) -> None:
    client.say("session.config", stream_audio=streams, response_format=audio_format)
    client.say("input.text", text="Hello there.")
    client.say("input.done")
    _, audio, count = client.unit()
    assert audio.startswith((magic, b"ID3"))
    assert streams or count == 1


def test_the_times_of_words_follow_the_audio(client: Client) -> None:
    client.say("session.config", word_timestamps=True, **STREAM)
    client.say("input.text", text="The birch canoe.")
    client.say("input.done")
    start, *chunks, done = client.hear_until("audio.done")
    assert start["word_timestamps"] is True
    assert [chunk["chunk_id"] for chunk in chunks] == list(range(len(chunks)))
    pcm = b"".join(base64.b64decode(chunk["audio_b64"]) for chunk in chunks)
    assert done["total_bytes"] == len(pcm)
    assert [chunk["timestamps"] for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    words = chunks[-1]["timestamps"]
    assert [word["word"].strip(".") for word in words] == ["The", "birch", "canoe"]
    assert words[-1]["end_ms"] <= chunks[-1]["chunk_end_ms"] == done["duration_ms"]


def test_a_text_that_cannot_be_spoken_does_not_hurt_the_next(client: Client) -> None:
    client.say("session.config", split_granularity="sentence", **STREAM)
    client.say("input.text", text="你好。Hello there.")
    client.say("input.done")
    start, error, done = client.hear_until("audio.done")
    assert (start["sentence_text"], error["code"], error["param"]) == ("你好。", "invalid_value", "input")
    assert (error["sentence_index"], done["error"]) == (0, True)
    assert client.unit()[0]["sentence_text"] == "Hello there."
    assert client.hear()["total_sentences"] == 2


def test_a_cancel_frees_the_workers_within_a_second(served: Farm, client: Client) -> None:
    eventually(lambda: idle(served), 20, "earlier work is done")
    client.say("session.config", **STREAM)
    client.say("input.text", text=STORY * 60)
    client.say("input.done")
    assert client.hear()["type"] == "audio.start"
    client.say("input.cancel")
    *_, cancelled, done, end = client.hear_until("session.done")
    assert (cancelled["type"], cancelled["reason"]) == ("audio.cancelled", "client_cancel")
    assert cancelled["sent_ms"] == done["duration_ms"] == done["total_bytes"] // 48
    assert end == {"type": "session.done", "utterance_index": 0, "total_sentences": 1, "cancelled": True}
    eventually(lambda: idle(served), 1.0, "no slot is held any more")
    client.say("input.text", text="Next.")
    client.say("input.done")
    assert client.unit()[0]["utterance_index"] == 1


def test_a_client_that_leaves_frees_the_workers_within_a_second(served: Farm) -> None:
    eventually(lambda: idle(served), 20, "earlier work is done")
    with connect(f"{served.base.replace('http', 'ws')}{ROUTE}", max_size=None) as socket:
        client = Client(socket)
        client.say("session.config", **STREAM)
        client.say("input.text", text=STORY * 60)
        client.say("input.done")
        assert client.hear()["type"] == "audio.start"
        socket.close()
    eventually(lambda: idle(served), 1.0, "no slot is held any more")
