"""What the workers are told of a reference recording, and how long its reading may take."""

import asyncio
import base64
from typing import Any

import httpx
import pytest

from speechmill.api.app import create_app
from speechmill.api.speech import speakers
from speechmill.configs.settings import Settings, load
from speechmill.infra.embedded import EmbeddedValkey
from speechmill.models.registry import cards

from .clips import wav

VOXCPM = "openbmb/VoxCPM2"
BASE = "Qwen/Qwen3-TTS-12Hz-1.7B-Base"
CLIP = base64.b64encode(wav(1.0, 8_000)).decode()


class Known(Exception):
    """Ends a request where its recording would be read."""


@pytest.fixture
def settings(valkey: EmbeddedValkey, prefix: str, monkeypatch: pytest.MonkeyPatch) -> Settings:
    async def kept(*_: Any) -> str:
        return "references/test.wav"

    monkeypatch.setattr(speakers, "keep_clip", kept)
    settings = load().model_copy(deep=True)
    settings.redis.control_url, settings.redis.prefix = valkey.url, prefix
    settings.models, settings.test.stand_in = (VOXCPM, BASE), True
    return settings


def speak(settings: Settings, **fields: Any) -> httpx.Response:
    app = create_app(settings)

    async def main() -> httpx.Response:
        client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test")
        async with app.router.lifespan_context(app), client:
            body = {"input": "Hello.", "ref_audio": CLIP, **fields}
            return await client.post("/v1/audio/speech", json=body)

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("fields", "mode"),
    [
        ({"model": VOXCPM}, "reference"),
        ({"model": VOXCPM, "ref_text": " "}, "reference"),
        ({"model": VOXCPM, "ref_text": "words"}, "continuation"),
        ({"model": VOXCPM, "ref_text": "x", "extra_params": {"clone_mode": "reference"}}, "reference"),
        ({"model": VOXCPM, "ref_text": "x", "extra_params": {"clone_mode": "ref_continuation"}}, "ref_continuation"),
        ({"model": BASE, "ref_text": "words"}, "icl"),
        ({"model": BASE, "x_vector_only_mode": True}, "xvec"),
    ],
    ids=repr,
)
def test_a_recording_is_read_in_the_mode_that_the_request_means(
    settings: Settings, fields: dict[str, Any], mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes = []

    async def read(*given: Any) -> dict[str, str]:
        modes.append(given[-1])
        raise Known

    monkeypatch.setattr(speakers, "reference_assets", read)
    assert speak(settings, **fields).status_code == 500
    assert modes == [mode]


def test_a_recording_that_is_not_read_within_the_limit_of_the_call_ends_it(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def read(*_: Any) -> dict[str, str]:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(speakers, "reference_assets", read)
    answer = speak(settings, model=BASE, ref_text="words", timeout_seconds=1)
    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "deadline_exceeded")


def test_modes_that_a_card_speaks_of_are_its_own() -> None:
    for card in cards().values():
        if card.encode is not None:
            assert card.encode.spoken_mode in ("", *card.encode.modes)
            chosen = card.parameters.extra.get(card.encode.chosen_by)
            assert chosen is None or chosen.choices == card.encode.modes
