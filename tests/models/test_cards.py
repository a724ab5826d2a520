"""The families' cards against the tables of the speech API, and how a card is read."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from speechmill.models.card import ModelCard, read_cards
from speechmill.models.checkpoints import find_checkpoint, folder_named, recognise
from speechmill.models.registry import cards, require, served

QWEN = "Qwen/Qwen3-TTS-12Hz-"
PRESET, DESIGN, BASE = f"{QWEN}1.7B-CustomVoice", f"{QWEN}1.7B-VoiceDesign", f"{QWEN}1.7B-Base"
FISH = "fishaudio/s2-pro"
SAMPLER = {"temperature", "top_p", "top_k", "repetition_penalty"}
QWEN_EXTRA = SAMPLER | {"subtalker_temperature", "subtalker_top_p", "subtalker_top_k"}
AUK_EXTRA = {"num_inference_steps", "guidance_scale", "sway", "t_grid", "vae_sample"}


def row(hz: int, voice: str, ref: str, speed: str = "stretch", **more: Any) -> dict[str, Any]:
    """What a model accepts: `voice` and its kinds, `ref_audio/ref_text`, who changes the tempo, and all else."""
    kinds = {"b": "builtin", "u": "uploaded", "p": "precomputed"}
    use, _, initials = voice.partition(" ")
    ref_audio, ref_text = ref.split("/")
    told = {"hz": hz, "voice": use, "kinds": tuple(kinds[letter] for letter in initials), "speed": speed}
    told |= {"ref_audio": ref_audio, "ref_text": ref_text, "instructions": "none", "language": False}
    return told | {"task_type": None, "embedding": 0, "budget": 4096, "extra": SAMPLER} | more


def qwen_row(voice: str, ref: str, task_type: str, **more: Any) -> dict[str, Any]:
    return row(24_000, voice, ref, language=True, task_type=task_type, extra=QWEN_EXTRA, **more)


ROWS = {
    "auk": row(24_000, "none", "optional/none", instructions="optional", budget=0, extra=AUK_EXTRA),
    "auk-flash": row(24_000, "none", "optional/none", instructions="optional", budget=0, extra=AUK_EXTRA),
    "FunAudioLLM/Fun-CosyVoice3-0.5B-2512": row(24_000, "optional u", "required/required", budget=2048),
    FISH: row(44_100, "optional bu", "optional/with_ref_audio"),
    "nineninesix/gepard-1.0": row(22_050, "optional b", "none/none", "none", extra=set()),
    "bosonai/higgs-audio-v2-generation-3B-base": row(
        24_000,
        "optional u",
        "optional/with_ref_audio",
        "none",
        extra=SAMPLER | {"ras_win_len", "ras_win_max_num_repeat", "scene"},
    ),
    "zai-org/GLM-TTS": row(24_000, "optional u", "required/required", budget=2048, extra=SAMPLER | {"phoneme"}),
    PRESET: qwen_row("optional b", "none/none", "CustomVoice", instructions="optional"),
    DESIGN: qwen_row("none", "none/none", "VoiceDesign", instructions="required"),
    BASE: qwen_row("optional up", "required/required", "Base", embedding=2048),
    f"{QWEN}0.6B-CustomVoice": qwen_row("optional b", "none/none", "CustomVoice"),
    f"{QWEN}0.6B-Base": qwen_row("optional up", "required/required", "Base", embedding=1024),
    "mistralai/Voxtral-4B-TTS-2603": row(24_000, "or_ref_audio b", "optional/none", extra={"cfg_alpha"}),
}
OTHERS = {"openbmb/VoxCPM2", "k2-fsa/OmniVoice"}
"""Whose extra parameters are too many for a table."""


@pytest.fixture(params=list(cards().values()), ids=list(cards()))
def card(request: pytest.FixtureRequest) -> ModelCard:
    found: ModelCard = request.param
    return found


@pytest.mark.parametrize("model", ROWS)
def test_a_model_accepts_what_the_table_of_the_api_says(model: str) -> None:
    found = cards()[model]
    can = found.parameters
    assert ROWS[model] == {
        "hz": found.sample_rate,
        "voice": can.voice,
        "kinds": can.voice_kinds,
        "ref_audio": can.ref_audio,
        "ref_text": can.ref_text,
        "speed": can.speed.by,
        "instructions": can.instructions,
        "language": can.language,
        "task_type": can.task_type,
        "embedding": can.speaker_embedding,
        "budget": can.max_new_tokens,
        "extra": set(can.extra_parameters),
    }


def test_every_card_of_the_ten_families_is_in_a_table() -> None:
    assert cards().keys() - {"hibari"} == ROWS.keys() | OTHERS


def test_a_model_writes_pcm_at_its_rate_in_whole_samples_for_each_frame(card: ModelCard) -> None:
    *codes, pcm = card.stages
    assert (pcm.unit, pcm.rate, pcm.dtype) == ("pcm", card.sample_rate, "s16le")
    assert [card.sample_rate % stage.rate for stage in codes] == [0] * len(codes)


def test_a_model_that_takes_recordings_has_a_stage_for_them(card: ModelCard) -> None:
    assert (card.encode is not None) == (card.parameters.ref_audio != "none")


def test_only_a_model_with_voices_of_its_own_lists_them_as_such(card: ModelCard) -> None:
    assert ("builtin" in card.parameters.voice_kinds) == bool(card.voices)


def test_patterns_of_refused_text_can_be_compiled(card: ModelCard) -> None:
    re.compile(card.parameters.refused_input)


def test_the_first_preset_speaker_is_the_default() -> None:
    names = [voice.name for voice in cards()[PRESET].voices]
    assert names == ["vivian", "serena", "uncle_fu", "dylan", "eric", "ryan", "aiden", "ono_anna", "sohee"]
    found = cards()[PRESET].voice("default")
    assert found is not None
    assert found.name == "vivian"


def test_voxtral_s_voices_have_no_default() -> None:
    found = cards()["mistralai/Voxtral-4B-TTS-2603"]
    assert len(found.voices) == 20
    assert found.voice(None) is None


def test_omnivoice_speaks_every_language_of_its_table_and_changes_tempo_itself() -> None:
    found = cards()["k2-fsa/OmniVoice"]
    assert len(found.languages) == len(set(found.languages)) == 646
    assert (found.parameters.speed.by, found.parameters.duration) == ("native", "optional")
    assert [len(group) for group in found.parameters.instruction_attributes] == [4, 10, 10, 2, 22]
    assert {"num_inference_steps", "guidance_scale"} <= found.parameters.extra.keys()


def test_voxcpm2_takes_instructions_and_recordings_in_three_modes() -> None:
    found = cards()["openbmb/VoxCPM2"]
    assert (found.sample_rate, len(found.languages), found.parameters.instructions) == (48_000, 30, "optional")
    assert found.encode is not None
    assert found.parameters.extra["clone_mode"].choices == found.encode.modes


def test_auk_is_told_the_length_or_takes_it_from_the_recording() -> None:
    can = cards()["auk"].parameters
    assert (can.duration, can.instructions_replace_input) == ("without_ref_audio", True)
    assert can.task_templates["CustomVoice"].format(input="Hi") == 'Say the following: "Hi"'


def test_higgs_refuses_the_tags_of_speakers() -> None:
    can = cards()["bosonai/higgs-audio-v2-generation-3B-base"].parameters
    assert re.search(can.refused_input, "[SPEAKER12] Hello")
    assert not re.search(can.refused_input, "The SPEAKER0 said [SPEAKER]")
    assert "speakers" in can.refused_fields


def family(**changes: Any) -> dict[str, Any]:
    """A parsed `model.toml`."""
    stages = [{"name": "voice", "unit": "pcm", "rate": 8000.0, "dtype": "s16le", "slots": 1}]
    shared = {"family": "f", "owned_by": "o", "created": 0, "description": "", "sample_rate": 8000, "languages": []}
    parts = {"licence": {"code": "", "weights": ""}, "segments": {"max_chars": 9}, "parameters": {"samples": True}}
    return {**shared, **parts, "stages": stages, **changes}


def test_models_of_a_family_share_tables_and_replace_lists() -> None:
    own = [{"id": "a"}, {"id": "b", "parameters": {"language": True}, "languages": ["English"]}]
    first, second = read_cards(family(models=own, languages=["German"]))
    assert (first.parameters.samples, first.parameters.language, first.languages) == (True, False, ("German",))
    assert (second.parameters.samples, second.parameters.language, second.languages) == (True, True, ("English",))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"default_voice": "nobody"}, "not among the voices"),
        ({"stages": []}, "at least 1 item"),
        ({"parametres": {}}, "Extra inputs"),
        ({"stages": [{"name": "v", "unit": "codes", "rate": 1, "dtype": "", "slots": 1}]}, "exactly the last stage"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_card_that_contradicts_itself_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        read_cards(family(id="a", **changes))


def test_an_unknown_model_and_one_that_nothing_computes_are_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(LookupError, match=r"^unknown model 'nobody'; known: .*hibari"):
        served(["hibari", "nobody"])
    with pytest.raises(LookupError, match=r"^model 'zai-org/GLM-TTS' has a card but no engine.*test\.stand_in"):
        require(cards()["zai-org/GLM-TTS"], tmp_path)
    with pytest.raises(LookupError, match=rf'^model \'{FISH}\' needs its checkpoint: .* checkpoints\."{FISH}"'):
        require(cards()[FISH], None)
    with pytest.raises(LookupError, match=rf"^model '{FISH}': no such folder: .*/none$"):
        require(cards()[FISH], tmp_path / "none")
    require(cards()[FISH], tmp_path)
    require(cards()["hibari"], None)


@pytest.mark.parametrize("name", ["/none", "./none", "../none", "~/none", "none/", "here/none", "a/b/c"])
def test_what_is_written_as_a_path_must_be_a_folder(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("here").mkdir()
    with pytest.raises(LookupError, match=f"^no such folder: {name}$"):
        folder_named(name)


def test_a_folder_is_meant_before_a_model_and_a_model_before_a_missing_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    Path(FISH).parent.mkdir()
    assert [folder_named(name) for name in (FISH, "hibari", "nobody", "no/body")] == [None] * 4
    Path(FISH).mkdir()
    assert folder_named(FISH) == Path(FISH)
    assert folder_named(f"~/{FISH}") == tmp_path / FISH


def test_a_checkpoint_is_found_by_name_or_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert find_checkpoint(FISH, {}) is None
    folder = tmp_path / "models--fishaudio--s2-pro"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("abc")
    assert find_checkpoint(FISH, {}) is None
    (folder / "snapshots" / "abc").mkdir(parents=True)
    assert find_checkpoint(FISH, {}) == folder / "snapshots" / "abc"
    assert find_checkpoint(FISH, {FISH: Path("mine")}) == Path("mine")


@pytest.mark.parametrize(
    ("config", "found"),
    [
        ({"model_type": "fish_qwen3_omni"}, FISH),
        ({"model_type": "qwen3_tts", "tts_model_type": "custom_voice", "tts_model_size": "1b7"}, PRESET),
        ({"model_type": "qwen3_tts", "tts_model_type": "voice_design", "tts_model_size": "1b7"}, DESIGN),
        ({"model_type": "qwen3_tts", "tts_model_type": "base", "tts_model_size": "1b7"}, BASE),
        ({"model_type": "qwen3_tts", "tts_model_type": "base", "tts_model_size": "0b6"}, f"{QWEN}0.6B-Base"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_folder_tells_which_model_it_is_a_checkpoint_of(tmp_path: Path, config: dict[str, str], found: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert recognise(tmp_path) == found


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ('{"model_type": "bert"}', r"a checkpoint of 'bert'.*known: fish_qwen3_omni, dual_ar, qwen3_tts$"),
        (
            '{"model_type": "qwen3_tts", "tts_model_type": "voice_design", "tts_model_size": "0b6"}',
            r"of none of its models here: tts_model_type 'voice_design', tts_model_size '0b6'$",
        ),
        ("[]", "holds no checkpoint"),
        (None, "holds no checkpoint"),
    ],
)
def test_a_folder_of_another_kind_is_one_line(tmp_path: Path, content: str | None, told: str) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(LookupError, match=told):
        recognise(tmp_path)
