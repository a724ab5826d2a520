"""Pipecat's service for OpenAI's TTS, in a pipeline: PCM that must be 24 kHz (speech_api §8)."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from .conftest import Place

openai = pytest.importorskip("openai")
frames = pytest.importorskip("pipecat.frames.frames")
testing = pytest.importorskip("pipecat.tests.utils")
tts = pytest.importorskip("pipecat.services.openai.tts")
worker = pytest.importorskip("pipecat.pipeline.worker")

TEXT = "The quick brown fox jumps over the lazy dog."
RATE = 24_000


def spoken(place: Place, **settings: str | float) -> tuple[Sequence[Any], Sequence[Any]]:
    """The frames that a pipeline with this service sends on, and those that it sends back."""

    async def run() -> tuple[Sequence[Any], Sequence[Any]]:
        wanted = tts.OpenAITTSService.Settings(**settings)
        params = worker.PipelineParams(audio_out_sample_rate=RATE)
        say = [frames.TTSSpeakFrame(TEXT)]
        async with openai.DefaultAsyncHttpxClient() as http:  # one of its own it would never close
            service = tts.OpenAITTSService(api_key=place.key, base_url=place.v1, http_client=http, settings=wanted)
            return await testing.run_test(service, frames_to_send=say, pipeline_params=params, start_timeout=30)

    return asyncio.run(run())


def duration_s(sent: Sequence[Any]) -> float:
    audio = [frame for frame in sent if isinstance(frame, frames.TTSAudioRawFrame)]
    assert {(frame.sample_rate, frame.num_channels) for frame in audio} == {(RATE, 1)}
    return sum(len(frame.audio) for frame in audio) / 2 / RATE


def test_the_defaults_of_pipecat_are_heard(guarded: Place) -> None:
    down, up = spoken(guarded)
    assert 1.5 < duration_s(down) < 10
    assert not any(isinstance(frame, frames.ErrorFrame) for frame in up)


def test_its_voices_instructions_and_speed_are_heard(guarded: Place) -> None:
    plain, _ = spoken(guarded, voice="marin")
    fast, _ = spoken(guarded, voice="marin", instructions="Hurry.", speed=1.5)
    assert duration_s(fast) < 0.8 * duration_s(plain)


def test_a_refusal_is_an_error_frame_with_what_the_server_says(guarded: Place) -> None:
    _, up = spoken(guarded, speed=9.0)
    errors = [frame.error for frame in up if isinstance(frame, frames.ErrorFrame)]
    assert "400 - speed: " in errors[0]
