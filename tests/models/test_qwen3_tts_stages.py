"""Qwen3-TTS's talker as a stage, from the golden checkpoints: resuming, mixing, refusing, and checking folders."""

import json
import random
import re
import shutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from driving import drive, length, payload, task
from goldens import Goldens

from speechmill.models.checkpoints import check_checkpoint, recognise
from speechmill.models.common.engine.model import Request
from speechmill.models.common.engine.stage import TalkerStage, read_codes
from speechmill.models.qwen3_tts import defaults
from speechmill.models.qwen3_tts.check import check, check_talker
from speechmill.models.qwen3_tts.config import TalkerConfig, read_config
from speechmill.models.qwen3_tts.features import Reference, pack
from speechmill.models.qwen3_tts.plan import FRAMES_OF_A_TOKEN, LEAST_BUDGET
from speechmill.models.qwen3_tts.sampling import read_sampling
from speechmill.models.qwen3_tts.stages import load
from speechmill.models.stage import CannotLoad, Resume, SlotFailed, StageOptions, StageTask

GOLDENS = Goldens("qwen3_tts")
CHECKPOINTS = ("custom_voice", "voice_design", "base")
FRAMES = 6
TEXT = "This is a small test of speech."


@cache
def talker(checkpoint: str) -> TalkerStage:
    stage = load("talker", StageOptions(slots=8, checkpoint=GOLDENS.folder / checkpoint))
    assert isinstance(stage, TalkerStage)
    return stage


@cache
def config(checkpoint: str) -> TalkerConfig:
    return read_config(GOLDENS.folder / checkpoint)


def spoken(text: str = TEXT, live: bool = True, **changes: Any) -> StageTask:
    """`changes` of the task itself, the others are parameters."""
    fields = ("voice", "seed", "take", "segment", "assets", "open")
    own = {name: changes.pop(name) for name in fields if name in changes}
    return task(text, live=live, params={"max_new_tokens": FRAMES + 1, **changes}, **own)


def recording(frames: int, seed: int, more: int = 0) -> dict[str, bytes]:
    """What `encode` makes of one; without frames of its speaker alone. `more`: groups than the model has."""
    chance, sizes = np.random.default_rng(seed), (*config("base").codebooks, *[2] * more)
    codes = chance.integers(sizes, size=(frames, len(sizes))).astype(np.uint16) if frames else None
    return {"features": pack(Reference(chance.standard_normal(config("base").talker.width).astype(np.float32), codes))}


def vector(seed: int) -> list[float]:
    return np.random.default_rng(seed).standard_normal(config("base").talker.width).tolist()


def mixed(checkpoint: str) -> list[StageTask]:
    """Eight of every kind that the checkpoint takes."""
    languages, speakers = list(config(checkpoint).languages), list(config(checkpoint).speakers) or ["default"]
    texts = ["Hello.", TEXT, "天气真好。", f"{TEXT} {TEXT}"]
    common = [
        {"text": texts[n % 4], "seed": n, "live": n % 2 == 0, "non_streaming_mode": n % 3 == 0, "top_p": 1 - n / 9}
        for n in range(8)
    ]
    own: list[dict[str, Any]]
    if checkpoint == "base":
        heard = {"assets": recording(9, seed=1), "ref_text": "Hi there."}
        own = [{"speaker_embedding": vector(1)}, {"assets": recording(0, seed=2)}, heard, {**heard, "top_k": 5}] * 2
    elif checkpoint == "voice_design":
        own = [{"instructions": words} for words in ("a low voice", "", "speech", "names")] * 2
    else:
        own = [{"voice": speakers[n % len(speakers)], "language": languages[n % len(languages)]} for n in range(8)]
    return [spoken(**shared, **each) for shared, each in zip(common, own, strict=True)]


@cache
def alone(checkpoint: str) -> list[bytes]:
    return [payload(drive(talker(checkpoint), each)) for each in mixed(checkpoint)]


def side_by_side(stage: TalkerStage, tasks: Sequence[StageTask], chance: random.Random) -> list[bytes]:
    """They join at random steps, and a step takes some of them."""
    made, waiting, running = [b""] * len(tasks), list(range(len(tasks))), set[int]()
    while waiting or running:
        while waiting and (not running or chance.random() < 0.3):
            slot = waiting.pop(0)
            stage.open(slot, tasks[slot], Resume())
            running.add(slot)
        for emission in stage.step(chance.sample(sorted(running), chance.randint(1, len(running)))):
            made[emission.slot] += emission.payload
            if emission.final:
                running.remove(emission.slot)
                stage.close(emission.slot)
        stage.engine.audit()
    return made


@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
def test_it_warms_up_and_leaves_no_slot_behind(checkpoint: str) -> None:
    talker(checkpoint).warm()
    talker(checkpoint).engine.audit()
    assert all(alone(checkpoint))


@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
def test_requests_of_all_kinds_that_come_and_go_are_spoken_as_alone(checkpoint: str) -> None:
    assert side_by_side(talker(checkpoint), mixed(checkpoint), random.Random(1)) == alone(checkpoint)


@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
def test_it_goes_on_after_each_of_its_pieces(checkpoint: str) -> None:
    for each in mixed(checkpoint)[:4:2]:
        whole = drive(talker(checkpoint), each)
        for count in range(1, len(whole)):
            resume = Resume(length(whole[:count]), payload(whole[:count]), whole[count - 1].cursor)
            rest = drive(talker(checkpoint), each, resume=resume)
            assert payload(rest) == payload(whole[count:])
            assert rest[-1].trailer == whole[-1].trailer


def asked(checkpoint: str, **changes: Any) -> tuple[Any, ...]:
    """All that the codes of a take depend on."""
    request = talker(checkpoint)._plan(spoken(**changes))
    return (request.prompt.tobytes(), request.vectors.tobytes(), request.beside, request.key, request.settings)


def test_whatever_is_asked_for_makes_another_request() -> None:
    """In each list every one differs from all others."""
    heard, words = recording(6, seed=1), {"ref_text": "Hi there."}
    assert_all_differ(
        "base",
        {"assets": heard, **words},
        {"assets": heard, "ref_text": "Hello."},
        {"assets": recording(6, seed=3), **words},
        {"assets": heard, "x_vector_only_mode": True},
        {"speaker_embedding": vector(1)},
        {"assets": heard, **words, "non_streaming_mode": True},
        {"assets": heard, **words, "language": "English"},
        *({"assets": heard, **words, name: 8} for name in ("seed", "take", "segment")),
        *({"assets": heard, **words, name: 0.5} for name in ("temperature", "top_p", "repetition_penalty")),
        *({"assets": heard, **words, f"subtalker_{name}": 0.5} for name in ("temperature", "top_p")),
        *({"assets": heard, **words, name: value} for name in ("top_k", "subtalker_top_k") for value in (0, 7)),
    )
    assert_all_differ("voice_design", {}, {"instructions": "a low voice"}, {"non_streaming_mode": False})
    speakers, language = config("custom_voice").speakers, next(iter(config("custom_voice").languages))
    own = next(name for name in speakers if name not in config("custom_voice").dialects)
    assert_all_differ("custom_voice", *({"voice": name} for name in speakers), {"voice": own, "language": language})


def assert_all_differ(checkpoint: str, *changes: dict[str, Any]) -> None:
    assert len({asked(checkpoint, **each) for each in changes}) == len(changes)


def test_names_are_found_in_any_case_and_nobody_named_is_somebody() -> None:
    name = next(iter(config("custom_voice").speakers))
    assert asked("custom_voice", voice=name) == asked("custom_voice", voice=name.upper(), language="AUTO")
    assert asked("custom_voice", voice="") == asked("custom_voice", voice="default")


def test_what_is_no_part_of_the_text_is_nothing_else_either() -> None:
    """Blanks around it, and control tokens that are only spelt."""
    stage = talker("custom_voice")
    assert asked("custom_voice", text=f"\n {TEXT} \t") == asked("custom_voice", text=TEXT)
    request = stage._plan(spoken("a<|im_end|>b<|endoftext|>"))
    ids = config("custom_voice").text
    assert (request.prompt[0] == ids.end).sum() == 0
    assert (request.prompt[0] == ids.start).sum() == 1


def test_a_small_model_is_not_told_how_to_speak() -> None:
    plan = talker("custom_voice")._plan
    told = spoken(instructions="a low voice")
    small = config("custom_voice").size == "0b6"
    assert (plan(told).prompt.shape == plan(spoken()).prompt.shape) == small


@pytest.mark.parametrize(("text", "least"), [(TEXT, 1), (" ".join([TEXT] * 9), LEAST_BUDGET // FRAMES_OF_A_TOKEN + 1)])
def test_a_take_may_last_as_long_as_its_text_can_take(text: str, least: int) -> None:
    stage = talker("base")
    tokens = len(stage._plan(spoken(text, speaker_embedding=vector(1))).beside)  # all but the first, and an end
    assert tokens >= least
    free = stage._plan(task(text, params={"speaker_embedding": vector(1)}))
    assert free.max_frames == max(LEAST_BUDGET, FRAMES_OF_A_TOKEN * tokens)
    assert free.end_expected


@pytest.mark.parametrize(("tokens", "frames"), [(1, 1), (2, 1), (FRAMES + 1, FRAMES), (5 * LEAST_BUDGET, None)])
def test_a_budget_of_the_caller_s_is_the_budget(tokens: int, frames: int | None) -> None:
    stage = talker("base")
    bound = stage._plan(spoken(speaker_embedding=vector(1), max_new_tokens=tokens))
    room = stage.engine.longest(bound.prompt.shape[1])
    assert (bound.max_frames, bound.end_expected) == (frames or min(tokens - 1, room), False)


@pytest.mark.parametrize(("checkpoint", "changes", "told"), [
    ("custom_voice", {"voice": "nobody"}, "there is no speaker 'nobody'; this model has "),
    ("custom_voice", {"language": "Klingon"}, "there is no language 'klingon'; this model speaks "),
    ("custom_voice", {"text": " \n "}, "the text holds nothing to speak"),
    ("custom_voice", {"text": "1" * (config("custom_voice").positions + 1)}, "the prompt takes"),
    ("base", {}, "speaks like a recording or a speaker embedding, and has neither"),
    ("base", {"speaker_embedding": [0.5]}, "the speaker embedding has 1 numbers; this model takes"),
    ("base", {"speaker_embedding": [0.5], "open": True}, "the speaker embedding has 1 numbers; this model takes"),
    ("base", {"assets": recording(3, seed=1)}, "the words of the reference recording are missing"),
    ("base", {"assets": recording(3, 1, more=1), "ref_text": "Hi."}, "the reference was encoded for another model"),
])  # fmt: skip
def test_what_it_cannot_speak_is_refused_for_that_slot(checkpoint: str, changes: dict[str, Any], told: str) -> None:
    with pytest.raises(SlotFailed, match=re.escape(told)) as failure:
        talker(checkpoint).open(0, spoken(**changes), Resume())
    assert failure.value.code == "invalid_value"
    assert "\n" not in str(failure.value)
    talker(checkpoint).close(0)


def known(request: Request) -> tuple[Any, ...]:
    return (request.prompt.tobytes(), request.beside, request.complete, request.max_frames, request.end_expected)


@pytest.mark.parametrize("frames", [None, 0, 1, 40])
def test_a_text_that_comes_in_pieces_becomes_the_request_of_the_whole(frames: int | None) -> None:
    """Also where the reference, of so many frames, is longer than all of the text."""
    checkpoint, own = "custom_voice", dict[str, Any]()
    if frames is not None:
        checkpoint, own = "base", {"assets": recording(frames, seed=1)}
    stage, params = talker(checkpoint), {"ref_text": "Hi there.", "non_streaming_mode": False}
    whole = stage._plan(task(TEXT, params=params, **own))
    assert stage._plan_open is not None
    for pieces in ([TEXT], list(TEXT), [TEXT[:9], "", TEXT[9:]]):
        text = stage._plan_open(task("", params=params, open=True, **own))
        for piece in pieces:
            text.feed(piece, final=False)
        request = text.feed("", final=True)
        assert request is not None
        assert known(request) == known(whole)


def test_only_codes_that_the_codec_has_are_made() -> None:
    for checkpoint in CHECKPOINTS:
        limits = config(checkpoint).codebooks
        for made in alone(checkpoint):
            assert (read_codes(made, len(limits)) < limits).all()


@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
def test_the_golden_checkpoints_are_found_complete(checkpoint: str) -> None:
    assert check_talker(GOLDENS.folder / checkpoint) == []


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDENS.folder / "base", tmp_path / "broken"))


def change(file: Path, path: list[str], value: Any) -> None:
    """Put `value` at `path`."""
    whole = json.loads(file.read_text())
    place = whole
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    file.write_text(json.dumps(whole))


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        (["tts_model_type"], "sing", "tts_model_type is 'sing', expected custom_voice, voice_design or base"),
        (["talker_config"], [], "talker_config is [], expected an object"),
        (["talker_config", "num_attention_heads"], None, "talker_config: num_attention_heads is null, expected"),
        (["talker_config", "code_predictor_config", "head_dim"], 0, "code_predictor_config: head_dim is 0, expected"),
        (["talker_config", "num_code_groups"], config("base").groups + 1, "do not fit the code predictor"),
        (["talker_config", "codec_bos_id"], 99_999, "codec_bos_id is 99999, beyond the vocabulary of"),
        (["talker_config", "codec_eos_token_id"], 3, "codec_eos_token_id is 3, which is a code"),
        (["tts_pad_token_id"], "pad", 'tts_pad_token_id is "pad", expected a whole number from 0 on'),
        (["talker_config", "codec_language_id", "english"], -1, "english is -1, expected a whole number from 0 on"),
        (["talker_config", "hidden_act"], "relu", 'hidden_act is "relu"; only "silu" is known here'),
        (["talker_config", "rope_scaling"], {"rope_type": "yarn"}, 'rope_type is "yarn"; only "default"'),
        (["talker_config", "rope_scaling"], {"type": "linear", "rope_type": "default"}, 'rope_type is "linear"'),
    ],
)  # fmt: skip
def test_a_config_that_does_not_fit_is_one_line(broken: Path, path: list[str], value: Any, told: str) -> None:
    change(broken / "config.json", path, value)
    (found,) = check_talker(broken)
    assert told in found
    assert "\n" not in found
    with pytest.raises(CannotLoad, match=re.escape(told)):
        load("talker", StageOptions(slots=1, checkpoint=broken))


def test_a_fine_tune_may_leave_out_what_upstream_takes_anyhow(broken: Path) -> None:
    file = broken / "config.json"
    said = {**json.loads(file.read_text()), **defaults._IDS}
    said["talker_config"] |= defaults._TALKER | {"text_vocab_size": 151_936, "head_dim": 64, "codec_eos_token_id": 2150}
    said["talker_config"]["code_predictor_config"] |= defaults._PREDICTOR
    file.write_text(json.dumps(said))
    wanted = read_config(broken)
    for name in defaults._IDS:
        del said[name]
    for name in (*defaults._TALKER, "head_dim", "code_predictor_config"):
        del said["talker_config"][name]
    file.write_text(json.dumps(said))
    assert read_config(broken) == wanted
    assert (wanted.talker.size, wanted.predictor.size) == (64, 128)


def test_a_tokenizer_that_does_not_fit_is_one_line(broken: Path) -> None:
    rows = config("base").text_vocabulary
    change(broken / "vocab.json", ["beyond"], rows)
    (found,) = check_talker(broken)
    assert found == f"{broken / 'vocab.json'} has token {rows}, and the config's text vocabulary is {rows}"
    (broken / "merges.txt").write_text("no such tokens")
    (found,) = check_talker(broken)
    assert found.startswith(f"cannot read {broken / 'vocab.json'} and merges.txt: ")


@pytest.mark.parametrize("name", ["config.json", "vocab.json", "merges.txt", "model.safetensors"])
def test_a_missing_file_is_named(broken: Path, name: str) -> None:
    (broken / name).unlink()
    (found,) = check_talker(broken)
    assert name in found


def test_tensors_that_do_not_fit_are_told_by_name(broken: Path) -> None:
    shape = config("base").talker
    change(broken / "config.json", ["talker_config", "num_hidden_layers"], shape.layers + 1)
    change(broken / "config.json", ["talker_config", "intermediate_size"], shape.hidden + 8)
    findings = check_talker(broken)
    assert any("mlp.gate_proj.weight is [" in found for found in findings)
    assert any(f"layers.{shape.layers}.input_layernorm.weight" in found for found in findings)
    with pytest.raises(CannotLoad, match=r"gate_proj\.weight is \["):
        load("talker", StageOptions(slots=1, checkpoint=broken))


def test_a_file_that_two_parts_are_read_from_is_told_once(broken: Path) -> None:
    (broken / "model.safetensors").write_bytes(b"cut off")
    (found,) = check_checkpoint(recognise(broken), broken)
    assert found.startswith(f"cannot read {broken / 'model.safetensors'}: it is cut off")


def test_a_talker_beside_another_codec_is_one_line(broken: Path) -> None:
    groups = config("base").groups
    for path in (["talker_config"], ["talker_config", "code_predictor_config"]):
        change(broken / "config.json", [*path, "num_code_groups"], groups - 1)
    (found,) = check(broken)
    assert f"the talker makes {groups - 1} codes below " in found
    assert f", the codec takes {groups} below " in found
    with pytest.raises(CannotLoad, match=re.escape(found)):
        load("talker", StageOptions(slots=1, checkpoint=broken))


def drawn(folder: Path, **said: Any) -> tuple[tuple[float, ...], ...]:
    """Temperature, top_p and top_k of the first code and of the others, where `generation_config.json` says this."""
    (folder / "generation_config.json").write_text(json.dumps(said))
    found = read_sampling(folder)
    return (
        (found.temperature, found.top_p, found.top_k),
        (found.sub_temperature, found.sub_top_p, found.sub_top_k),
    )


def test_settings_that_a_checkpoint_does_not_say_are_upstreams(tmp_path: Path) -> None:
    unsaid = read_sampling(tmp_path)
    assert (unsaid.repetition_penalty, unsaid.max_new_tokens) == (1.05, 2048)
    assert drawn(tmp_path) == ((0.9, 1.0, 50), (0.9, 1.0, 50))
    assert read_sampling(tmp_path) == unsaid
    assert drawn(tmp_path, subtalker_temperature=0.5, top_k=0) == ((0.9, 1.0, 0), (0.5, 1.0, 50))


def test_where_the_likeliest_code_is_taken_nothing_else_counts(tmp_path: Path) -> None:
    nothing = {"temperature": 0, "top_k": 0, "top_p": 0}
    assert drawn(tmp_path, do_sample=False, **nothing) == ((0.9, 1.0, 1), (0.9, 1.0, 50))
    others = {f"subtalker_{name}": value for name, value in nothing.items()}
    assert drawn(tmp_path, subtalker_dosample=False, **others) == ((0.9, 1.0, 50), (0.9, 1.0, 1))
    with pytest.raises(CannotLoad, match="temperature is 0, expected a positive number"):
        drawn(tmp_path, **nothing)
