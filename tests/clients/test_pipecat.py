"""Pipecat's service for OpenAI's TTS, in a pipeline: PCM that must be 24 kHz (speech_api §8)."""

import asyncio
import warnings
from collections.abc import Sequence

from openai import DefaultAsyncHttpxClient

from .conftest import Place

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it imports audioop, which Python 3.13 no longer has
    from pipecat.frames.frames import ErrorFrame, Frame, TTSAudioRawFrame, TTSSpeakFrame
    from pipecat.pipeline.worker import PipelineParams
    from pipecat.services.openai.tts import OpenAITTSService
    from pipecat.tests.utils import run_test

TEXT = "The quick brown fox jumps over the lazy dog."
RATE = 24_000


def spoken(place: Place, **settings: str | float) -> tuple[Sequence[Frame], Sequence[Frame]]:
    """The frames that a pipeline with this service sends on, and those that it sends back."""

    async def run() -> tuple[Sequence[Frame], Sequence[Frame]]:
        wanted = OpenAITTSService.Settings(**settings)
        params = PipelineParams(audio_out_sample_rate=RATE)
        say = [TTSSpeakFrame(TEXT)]
        async with DefaultAsyncHttpxClient() as http:  # one of its own it would never close
            service = OpenAITTSService(api_key=place.key, base_url=place.v1, http_client=http, settings=wanted)
            return await run_test(service, frames_to_send=say, pipeline_params=params, start_timeout=30)

    return asyncio.run(run())


def duration_s(frames: Sequence[Frame]) -> float:
    audio = [frame for frame in frames if isinstance(frame, TTSAudioRawFrame)]
    assert {(frame.sample_rate, frame.num_channels) for frame in audio} == {(RATE, 1)}
    return sum(len(frame.audio) for frame in audio) / 2 / RATE


def test_the_defaults_of_pipecat_are_heard(guarded: Place) -> None:
    down, up = spoken(guarded)
    assert 1.5 < duration_s(down) < 10
    assert not any(isinstance(frame, ErrorFrame) for frame in up)


def test_its_voices_instructions_and_speed_are_heard(guarded: Place) -> None:
    plain, _ = spoken(guarded, voice="marin")
    fast, _ = spoken(guarded, voice="marin", instructions="Hurry.", speed=1.5)
    assert duration_s(fast) < 0.8 * duration_s(plain)


def test_a_refusal_is_an_error_frame_with_what_the_server_says(guarded: Place) -> None:
    _, up = spoken(guarded, speed=9.0)
    errors = [frame.error for frame in up if isinstance(frame, ErrorFrame)]
    assert "400 - speed: " in errors[0]
