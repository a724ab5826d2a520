"""The OpenAI SDK, as its users call it."""

import asyncio
import base64
import io
import json

import av
import pytest

from .conftest import Place

openai = pytest.importorskip("openai")

TEXT = "The quick brown fox jumps over the lazy dog."
MAGIC = {"mp3": b"\xff", "wav": b"RIFF", "flac": b"fLaC", "opus": b"OggS", "aac": b"\xff"}


@pytest.fixture
def client(guarded: Place) -> "openai.OpenAI":
    with openai.OpenAI(base_url=guarded.v1, api_key=guarded.key) as client:
        yield client


def seconds(file: bytes) -> float:
    """Length of the audio that really decodes."""
    with av.open(io.BytesIO(file)) as container:
        return sum(frame.samples / frame.sample_rate for frame in container.decode(audio=0))


def whole(client: "openai.OpenAI", **options: object) -> bytes:
    wanted = {"model": "hibari", "voice": "default", "input": TEXT, "extra_body": {"seed": 7}, **options}
    return client.audio.speech.create(**wanted).read()


def test_what_openai_documents_is_an_mp3(client: "openai.OpenAI") -> None:
    speech = client.audio.speech.create(model="tts-1", voice="alloy", input=TEXT)
    assert speech.response.headers["content-type"] == "audio/mpeg"
    assert seconds(speech.read()) > 1.5


@pytest.mark.parametrize("audio_format", MAGIC)
def test_every_format_of_the_sdk_is_what_it_says(client: "openai.OpenAI", audio_format: str) -> None:
    file = whole(client, response_format=audio_format)
    assert file.startswith(MAGIC[audio_format])
    assert seconds(file) > 1.5


def test_pcm_under_an_openai_name_has_the_rate_that_the_sdks_player_expects(client: "openai.OpenAI") -> None:
    speech = client.audio.speech.create(model="gpt-4o-mini-tts", voice="nova", input=TEXT, response_format="pcm")
    assert speech.response.headers["x-sample-rate"] == "24000"
    assert len(speech.read()) % 2 == 0


def test_all_ways_to_listen_give_the_same_pcm(client: "openai.OpenAI", guarded: Place) -> None:
    raw = whole(client, response_format="pcm")
    assert streamed(client) == raw
    assert asyncio.run(streamed_async(guarded)) == raw
    assert of_events(whole(client, response_format="pcm", stream_format="sse")) == raw


def streamed(client: "openai.OpenAI") -> bytes:
    streaming = client.audio.speech.with_streaming_response.create(
        model="hibari",
        voice="default",
        input=TEXT,
        response_format="pcm",
        stream_format="audio",
        extra_body={"seed": 7},
    )
    with streaming as answer:
        return b"".join(answer.iter_bytes(4096))


async def streamed_async(place: Place) -> bytes:
    async with openai.AsyncOpenAI(base_url=place.v1, api_key=place.key) as client:
        streaming = client.audio.speech.with_streaming_response.create(
            model="hibari",
            voice="default",
            input=TEXT,
            response_format="pcm",
            stream_format="audio",
            extra_body={"seed": 7},
        )
        async with streaming as answer:
            return b"".join([chunk async for chunk in answer.iter_bytes(4096)])


def of_events(text: bytes) -> bytes:
    """The audio of server-sent events, which the SDK hands over as they are."""
    events = [json.loads(line[6:]) for line in text.decode().splitlines() if line.startswith("data: ")]
    assert [event["type"] for event in events[:-1]] == ["speech.audio.delta"] * (len(events) - 1)
    assert events[-1]["type"] == "speech.audio.done"
    assert events[-1]["usage"]["total_tokens"] > 0
    return b"".join(base64.b64decode(event["audio"]) for event in events[:-1])


def test_many_callers_at_once_are_all_heard(guarded: Place) -> None:
    async def speak_all() -> list[bytes]:
        async with openai.AsyncOpenAI(base_url=guarded.v1, api_key=guarded.key) as client:
            calls = [client.audio.speech.create(model="tts-1", voice="alloy", input=f"Number {n}.") for n in range(8)]
            return [answer.content for answer in await asyncio.gather(*calls)]

    assert all(seconds(file) > 0.3 for file in asyncio.run(speak_all()))


def test_models_and_their_aliases_are_listed_and_found(client: "openai.OpenAI") -> None:
    assert {model.id for model in client.models.list()} == {"hibari", "tts-1", "gpt-4o-mini-tts"}
    assert client.models.retrieve("tts-1").object == "model"


@pytest.mark.parametrize(
    ("options", "raised", "code", "param"),
    [
        ({"input": ""}, openai.BadRequestError, "empty_input", "input"),
        ({"model": "whisper-1"}, openai.NotFoundError, "model_not_found", "model"),
        ({"voice": "nobody"}, openai.BadRequestError, "invalid_voice", "voice"),
        ({"speed": 9.0}, openai.BadRequestError, "invalid_value", "speed"),
    ],
)
def test_a_refusal_is_the_sdks_own_exception(
    client: "openai.OpenAI", options: dict[str, object], raised: type[Exception], code: str, param: str
) -> None:
    with pytest.raises(raised) as refusal:
        whole(client, **options)
    assert (refusal.value.code, refusal.value.param) == (code, param)
    assert refusal.value.request_id.startswith("req_")


def test_a_wrong_key_is_an_authentication_error(guarded: Place) -> None:
    stranger = openai.OpenAI(base_url=guarded.v1, api_key="sk-wrong")
    with stranger, pytest.raises(openai.AuthenticationError) as refusal:
        whole(stranger)
    assert refusal.value.code == "invalid_api_key"
