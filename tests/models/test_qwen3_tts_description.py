"""What a checkpoint of Qwen3-TTS adds to its card, read from its config alone."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from goldens import Goldens

from speechmill.models.card import ModelCard
from speechmill.models.checkpoints import described, recognise
from speechmill.models.registry import cards

GOLDENS = Goldens("qwen3_tts")


def served(folder: Path) -> ModelCard:
    card = cards()[recognise(folder)]
    return described(card, {card.id: folder})


@pytest.fixture
def tuned(tmp_path: Path) -> Path:
    """A checkpoint whose config a test changes."""
    shutil.copy(GOLDENS.folder / "custom_voice" / "config.json", tmp_path)
    return tmp_path


def change(folder: Path, **changes: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["talker_config"] |= changes
    (folder / "config.json").write_text(json.dumps(config))


def test_a_checkpoint_that_has_what_the_card_says_changes_nothing(tuned: Path) -> None:
    card = cards()[recognise(tuned)]
    languages = {name.casefold(): 70 for name in reversed(card.languages)}
    change(tuned, spk_id={voice.name: 70 for voice in reversed(card.voices)}, codec_language_id=languages)
    assert served(tuned) == card


def test_a_card_without_a_checkpoint_is_what_the_package_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    for card in cards().values():
        assert described(card, {}) == card


def test_the_embedding_is_as_wide_as_the_checkpoint_takes_it() -> None:
    folder = GOLDENS.folder / "base"
    width = json.loads((folder / "config.json").read_text())["talker_config"]["hidden_size"]
    assert served(folder).parameters.speaker_embedding == width


def test_speakers_of_a_tuned_checkpoint_are_its_own(tuned: Path) -> None:
    change(tuned, spk_id={"mia": 70, "ryan": 71, "wei": 72}, spk_is_dialect={"mia": False, "wei": "wu_dialect"})
    card = served(tuned)
    assert [voice.name for voice in card.voices] == ["ryan", "mia", "wei"]
    assert [voice.languages for voice in card.voices] == [("English",), (), ("Chinese",)]
    assert card.voices[2].description == "Wu dialect."
    assert card.default_voice == "ryan"


def test_languages_are_those_that_the_checkpoint_has(tuned: Path) -> None:
    change(tuned, codec_language_id={"thai": 70, "english": 71, "beijing_dialect": 72})
    assert served(tuned).languages == ("English", "Beijing_Dialect", "Thai")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"spk_id": [1]}, r"spk_id is \[1\], expected an object"),
        ({"codec_language_id": None}, "codec_language_id is null, expected an object"),
    ],
)
def test_a_config_that_cannot_be_read_is_one_line(tuned: Path, changes: dict[str, Any], told: str) -> None:
    change(tuned, **changes)
    with pytest.raises(LookupError, match=f"^cannot read .*{told}$"):
        served(tuned)
