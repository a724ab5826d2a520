"""The API tells of a model what the checkpoint that is served from says."""

import json
from pathlib import Path

import pytest
from starlette.requests import HTTPConnection

from speechmill.api import farm as farm_module
from speechmill.api.callers import ANYBODY
from speechmill.api.errors import ApiError
from speechmill.api.farm import FarmState
from speechmill.api.speech.orders import Asker
from speechmill.configs.settings import Settings, load
from speechmill.infra.errors import ConfigError
from speechmill.models.registry import cards

MODEL = "Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice"


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Of a farm that serves a tuned checkpoint; no server runs."""
    monkeypatch.setattr(farm_module, "make_objects", lambda _: None)
    told = {"codec_language_id": {"english": 2050, "thai": 2060}, "spk_id": {"mia": 3000}}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen3_tts", "talker_config": told}))
    chosen = load().model_copy(deep=True)
    chosen.models, chosen.checkpoints = [MODEL], {MODEL: tmp_path}
    chosen.redis.control_url = "redis://127.0.0.1:1"
    return chosen


def test_speakers_and_languages_are_the_checkpoint_s(settings: Settings) -> None:
    (card,) = FarmState(settings).models
    assert ([voice.name for voice in card.voices], card.default_voice) == (["mia"], "mia")
    assert card.languages == ("English", "Thai")


def test_a_checkpoint_that_cannot_be_read_stops_the_api_in_one_line(settings: Settings) -> None:
    (settings.checkpoints[MODEL] / "config.json").write_text("{")
    with pytest.raises(ConfigError, match=r"^cannot read .*config\.json: "):
        FarmState(settings)


@pytest.mark.parametrize(
    ("models", "told"),
    [
        (("hibari", "auk"), "hibari, auk"),
        (tuple(cards())[:6], f"{', '.join(tuple(cards())[:5])} and more, see GET /v1/models"),
    ],
    ids=["few", "many"],
)
def test_who_names_no_model_of_several_is_told_which_there_are(
    settings: Settings, models: tuple[str, ...], told: str
) -> None:
    settings.models, settings.checkpoints = models, {}
    asker = Asker(FarmState(settings), ANYBODY, HTTPConnection({"type": "http", "headers": []}))
    with pytest.raises(ApiError, match=f"^several models are served: name one of {told}$") as unnamed:
        asker.model(None)
    assert (unnamed.value.code, unnamed.value.param) == ("missing_required_parameter", "model")
    with pytest.raises(ApiError, match=f"^no model 'nobody' is served here; there is {told}$"):
        asker.model("nobody")
