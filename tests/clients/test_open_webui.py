"""Open WebUI's requests, as its source makes them (speech_api §8): it is no package, so they are sent by hand."""

import asyncio
import io

import av
import httpx
import pytest

from .conftest import Place


@pytest.fixture
def base(guarded: Place) -> str:
    """What its administrator enters as the base URL."""
    return f"{guarded.base}/compat/openwebui/v1"


def speak(base: str, key: str, body: dict[str, object]) -> httpx.Response:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    return httpx.post(f"{base}/audio/speech", headers=headers, json=body, timeout=60)


def seconds(file: bytes) -> float:
    with av.open(io.BytesIO(file)) as container:
        assert container.format.name == "mp3"
        return sum(frame.samples / frame.sample_rate for frame in container.decode(audio=0))


def test_models_are_listed_without_a_key(base: str, guarded: Place) -> None:
    models = httpx.get(f"{base}/audio/models", timeout=10).json()["models"]
    assert {model["id"] for model in models} >= {"hibari", "tts-1"}
    assert httpx.get(f"{guarded.v1}/audio/models", timeout=10).status_code == 401


def test_voices_are_listed_without_a_key_as_objects(base: str) -> None:
    voices = httpx.get(f"{base}/audio/voices", timeout=10).json()["voices"]
    assert {voice["id"]: voice["name"] for voice in voices}["heart"] == "heart"


def test_what_its_page_sends_is_answered_with_the_mp3_that_it_stores(base: str, guarded: Place) -> None:
    answer = speak(base, guarded.key, {"input": "Hello from a browser.", "voice": "alloy", "model": "tts-1"})
    assert answer.status_code == 200
    assert int(answer.headers["content-length"]) == len(answer.content)
    assert seconds(answer.content) > 0.5


def test_parameters_of_other_servers_do_no_harm(base: str, guarded: Place) -> None:
    body = {"input": "Hello.", "voice": "heart", "model": "hibari", "chunk_method": "x", "instructions": "Whisper."}
    answer = speak(base, guarded.key, body)
    assert answer.status_code == 200
    assert answer.headers["x-ignored-params"] == "chunk_method, instructions"


def test_sentences_that_it_asks_for_at_once_are_all_spoken(base: str, guarded: Place) -> None:
    async def speak_all() -> list[httpx.Response]:
        async with httpx.AsyncClient(headers={"Authorization": f"Bearer {guarded.key}"}, timeout=60) as client:
            bodies = [{"input": f"Sentence {n}.", "voice": "heart", "model": "tts-1"} for n in range(6)]
            return await asyncio.gather(*(client.post(f"{base}/audio/speech", json=body) for body in bodies))

    assert all(seconds(answer.content) > 0.3 for answer in asyncio.run(speak_all()))


def test_a_refusal_says_why_where_it_looks_for_it(base: str, guarded: Place) -> None:
    answer = speak(base, guarded.key, {"input": "   ", "voice": "heart", "model": "tts-1"})
    assert answer.status_code == 400
    assert isinstance(answer.json()["error"]["message"], str)
