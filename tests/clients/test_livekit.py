"""LiveKit's agents with their TTS for OpenAI: by default MP3 inside of server-sent events (speech_api §8)."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from .conftest import Place

agents = pytest.importorskip("livekit.agents")
openai = pytest.importorskip("livekit.plugins.openai")
rtc = pytest.importorskip("livekit.rtc")

TEXT = "The quick brown fox jumps over the lazy dog."
T = TypeVar("T")
ONCE = agents.APIConnectOptions(max_retry=0)


def with_voice(place: Place, use: Callable[["openai.TTS"], Awaitable[T]], **options: str) -> T:
    """What `use` makes of a voice on this farm."""

    async def run() -> T:
        async with openai.TTS(base_url=place.v1, api_key=place.key, **options) as voice:
            voice.prewarm()
            return await use(voice)

    return asyncio.run(run())


async def speak(voice: "openai.TTS") -> "rtc.AudioFrame":
    async with voice.synthesize(TEXT, conn_options=ONCE) as stream:
        return await stream.collect()


def test_the_defaults_of_livekit_are_heard(guarded: Place) -> None:
    frame = with_voice(guarded, speak)
    assert (frame.sample_rate, frame.num_channels) == (24_000, 1)
    assert frame.duration > 1.5


@pytest.mark.parametrize("options", [{"model": "tts-1"}, {"response_format": "pcm"}, {"instructions": "Cheerful."}])
def test_raw_bytes_pcm_and_instructions_are_heard(guarded: Place, options: dict[str, str]) -> None:
    assert with_voice(guarded, speak, **options).duration > 1.5


def test_the_use_that_the_last_event_tells_is_counted(guarded: Place) -> None:
    counted = []

    async def count(voice: "openai.TTS") -> None:
        voice.on("metrics_collected", counted.append)
        await speak(voice)

    with_voice(guarded, count)
    assert counted[0].output_tokens > 0


def test_a_model_that_is_not_there_is_said_with_its_status(guarded: Place) -> None:
    with pytest.raises(agents.APIStatusError) as refusal:
        with_voice(guarded, speak, model="nothing")
    assert refusal.value.status_code == 404
    assert refusal.value.request_id.startswith("req_")
