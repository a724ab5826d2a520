"""What a request means that leaves things out, for each family of clients (§0.5)."""

import json
from typing import Any

import httpx
import pytest

from .test_fields import KEY, PRESET, assert_error, speak


def test_an_openai_model_streams_mp3_by_itself(server: str) -> None:
    answer = speak(server, {"model": "tts-1", "voice": "alloy"})
    assert answer.headers["content-type"] == "audio/mpeg"
    assert answer.headers["transfer-encoding"] == "chunked"
    assert answer.headers["x-voice"] == "vivian"
    assert answer.headers["x-model"] == PRESET


def test_stream_false_is_a_whole_file_in_every_profile(server: str) -> None:
    answer = speak(server, {"model": "tts-1", "stream": False})
    assert int(answer.headers["content-length"]) == len(answer.content)


@pytest.mark.parametrize("fields", [{"stream_format": "sse"}, {"stream": True}], ids=repr)
def test_what_livekit_sends_is_answered_with_events_of_mp3(server: str, fields: dict[str, Any]) -> None:
    answer = speak(server, {"model": "gpt-4o-mini-tts", "voice": "ash", "response_format": "mp3", **fields})
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
    assert [event["type"] for event in events[-2:]] == ["speech.audio.delta", "speech.audio.done"]
    assert events[0]["response_format"] == "mp3"
    assert "id:" not in answer.text


@pytest.mark.parametrize("profile", ["openai", "openwebui"])
def test_a_path_names_a_profile(server: str, profile: str) -> None:
    asked = {"response_format": "pcm", "model": "fishaudio/s2-pro"}
    answer = speak(server, asked, f"/compat/{profile}/v1/audio/speech")
    assert answer.headers["x-sample-rate"] == "24000"
    assert ("content-length" in answer.headers) == (profile == "openwebui")


def test_a_lenient_profile_ignores_what_the_model_cannot_do_and_says_so(server: str) -> None:
    asked = {"model": "nineninesix/gepard-1.0", "speed": 1.5, "instructions": "Calm.", "zzz": 1}
    answer = speak(server, asked, "/compat/openwebui/v1/audio/speech")
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-ignored-params"] == "instructions, speed, zzz"
    assert_error(speak(server, asked), 400, "unsupported_parameter", "instructions")


def test_what_changes_who_speaks_is_never_ignored(server: str) -> None:
    asked = {"model": "nineninesix/gepard-1.0", "ref_audio": "aGVsbG8="}
    answer = speak(server, asked, "/compat/openwebui/v1/audio/speech")
    assert_error(answer, 400, "unsupported_parameter", "ref_audio")


def test_open_webui_gets_its_lists_without_a_key(server: str) -> None:
    base = f"{server}/compat/openwebui/v1"
    voices = httpx.get(f"{base}/audio/voices").json()["voices"]
    assert {"id", "name"} <= voices[0].keys()
    assert {"id": "tts-1", "name": "tts-1"} in httpx.get(f"{base}/audio/models").json()["models"]
    plain = httpx.get(f"{server}/v1/audio/voices", headers=KEY).json()["voices"]
    assert all(isinstance(name, str) for name in plain)
