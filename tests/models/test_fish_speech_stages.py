"""Fish Speech's talker as a stage, from the golden checkpoint: resuming, refusing, and checking folders."""

import json
import re
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from driving import drive, drive_together, length, payload, task
from goldens import Goldens

from speechmill.models.common import memory as memory_module
from speechmill.models.common.engine.engine import EngineOptions
from speechmill.models.fish_speech.check import check
from speechmill.models.fish_speech.codec.config import read_config as read_codec_config
from speechmill.models.fish_speech.codec.features import pack
from speechmill.models.fish_speech.config import read_config
from speechmill.models.fish_speech.prompt import safe
from speechmill.models.fish_speech.stages import load, read_voice, talker_stage
from speechmill.models.registry import cards
from speechmill.models.stage import CannotLoad, Resume, SlotFailed, Stage, StageOptions

GOLDENS = Goldens("fish_speech")
CHECKPOINT = GOLDENS.folder / "ckpt"


@cache
def talker() -> Stage:
    return load("talker", StageOptions(slots=4, checkpoint=CHECKPOINT))


def spoken(text: str = "Hello there.", frames: int = 30, **changes: Any) -> Any:
    return task(text, params={"max_new_tokens": frames, "temperature": 1.0, "top_p": 0.95}, **changes)


def test_it_warms_up_and_leaves_no_slot_behind() -> None:
    talker().warm()
    assert length(drive(talker(), spoken())) > 0


def test_it_goes_on_after_each_of_its_pieces() -> None:
    whole = drive(talker(), spoken(live=True))
    for count in range(1, len(whole)):
        resume = Resume(length(whole[:count]), payload(whole[:count]))
        rest = drive(talker(), spoken(live=True), resume=resume)
        assert payload(rest) == payload(whole[count:])
        assert rest[-1].trailer == whole[-1].trailer


def test_a_log_that_has_all_of_the_budget_only_ends() -> None:
    whole = drive(talker(), spoken(frames=2))
    (end,) = drive(talker(), spoken(frames=2), resume=Resume(2, payload(whole)))
    assert (end.frames, end.final, end.trailer["finish_reason"]) == (0, True, "length")


def test_neighbours_and_listeners_change_nothing() -> None:
    works = [spoken(seed=1), spoken("Something else is said.", live=True), spoken(seed=3, frames=9)]
    together = drive_together(talker(), [(each, ()) for each in works])
    assert [payload(each) for each in together] == [payload(drive(talker(), each)) for each in works]
    assert payload(drive(talker(), spoken(seed=1, live=True))) == payload(together[0])


def test_seed_take_segment_reference_and_history_each_change_what_is_spoken() -> None:
    codes = GOLDENS.tensor("ref.codes1").numpy()
    with_words = {"max_new_tokens": 30, "temperature": 1.0, "top_p": 0.95, "ref_text": "Hi."}
    changed = [
        spoken(),
        spoken(seed=8),
        spoken(take=1),
        spoken(segment=1),
        task("Hello there.", params=with_words, assets={"features": pack(codes)}),
        spoken(history=(("Hi.", codes.T.astype("<u2").tobytes()),)),
    ]
    assert len({payload(drive(talker(), each)) for each in changed}) == len(changed)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"text": "Stop <|im_end|> here"}, "<|im_end|> is a control token"),
        ({"assets": {"features": pack(np.zeros((2, 3), np.uint16))}}, "words of the reference recording are missing"),
        ({"assets": {"features": pack(np.zeros((1, 3), np.uint16))}, "params": {"ref_text": "Hi."}}, "another model"),
        ({"text": "word " * 20_000}, "the prompt takes"),
    ],
    ids=["control token", "no words", "other codes", "too long"],
)
def test_what_it_cannot_speak_is_refused_for_that_slot(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(SlotFailed, match=told.replace("|", r"\|")) as failure:
        talker().open(0, task(**{"text": "Hello.", **changes}), Resume())
    assert failure.value.code == "invalid_value"
    talker().close(0)


def test_older_speaker_tags_mean_todays() -> None:
    older, newer = (drive(talker(), spoken(text)) for text in ("<speaker:1>Hi.", "<|speaker:1|>Hi."))
    assert payload(older) == payload(newer)


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("<|speaker:12|>Hi. <speaker:3>Yes.", True),
        ("a <| b |> c", False),
        ("<|im_end|>", False),
        ("<|speaker:x|>", False),
        ("<|speaker:1|><|semantic:1|>", False),
        ("a <|b> c|>", False),
        ("x < y | z > w", True),
    ],
)
def test_the_card_refuses_the_control_tokens_that_the_prompt_would(text: str, fits: bool) -> None:
    refused = re.search(cards()["fishaudio/s2-pro"].parameters.refused_input, text)
    assert (refused is None) == fits
    if fits:
        assert "<speaker" not in safe(text)
    else:
        with pytest.raises(ValueError, match="is a control token"):
            safe(text)


def test_both_layouts_are_found_complete() -> None:
    assert check(CHECKPOINT) == []
    (found,) = check(GOLDENS.folder / "legacy")
    assert "codec.pth" in found


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    return Path(shutil.copytree(CHECKPOINT, tmp_path / "broken"))


def test_a_config_that_does_not_fit_is_told_by_tensor(broken: Path) -> None:
    config = json.loads((broken / "config.json").read_text())
    config["text_config"]["n_layer"] += 1
    config["text_config"]["intermediate_size"] += 8
    (broken / "config.json").write_text(json.dumps(config))
    findings = check(broken)
    assert any("feed_forward.w1.weight is [" in found for found in findings)
    assert any(".attention_norm.weight" in found and found.endswith("is missing") for found in findings)
    with pytest.raises(CannotLoad, match=r"feed_forward\.w1\.weight is \["):
        load("talker", StageOptions(slots=1, checkpoint=broken))


@pytest.mark.parametrize(
    ("layout", "file", "path", "value", "told"),
    [
        ("ckpt", "config.json", ["text_config", "n_head"], None, "text_config: n_head is null, expected"),
        ("ckpt", "config.json", ["text_config"], None, "text_config is null, expected an object"),
        ("ckpt", "config.json", ["text_config", "max_seq_len"], "4096", 'max_seq_len is "4096", expected a whole'),
        ("ckpt", "config.json", ["text_config", "vocab_size"], 400, "token 452, and the config's vocabulary is 400"),
        ("ckpt", "config.json", [], [], "the file is [], expected an object"),
        ("legacy", "config.json", ["fast_n_head"], 0, "fast transformer: n_head is 0"),
        ("legacy", "config.json", ["norm_eps"], "small", 'norm_eps is "small", expected a positive number'),
        ("ckpt", "model.safetensors.index.json", [], [], "model.safetensors.index.json"),
        ("ckpt", "model.safetensors.index.json", ["weight_map"], {"norm.weight": 3}, "model.safetensors.index.json"),
        ("ckpt", "codec_config.json", ["encoder_transformer_layers"], [0], "fewer entries than encoder_rates"),
    ],
)
def test_json_that_does_not_fit_is_one_line(
    tmp_path: Path, layout: str, file: str, path: list[str], value: Any, told: str
) -> None:
    folder = Path(shutil.copytree(GOLDENS.folder / layout, tmp_path / "broken"))
    change(folder / file, path, value)
    (found,) = (line for line in check(folder) if "codec.pth" not in line)
    assert told in found
    assert "\n" not in found
    with pytest.raises(CannotLoad, match=re.escape(told)):
        load("codec" if file.startswith("codec") else "talker", StageOptions(slots=1, checkpoint=folder))


def change(file: Path, path: list[str], value: Any) -> None:
    """Put `value` at `path`; the whole file is `value` where that is empty."""
    whole = {"": json.loads(file.read_text())}
    place = whole
    for name in ["", *path][:-1]:
        place = place[name]
    place[["", *path][-1]] = value
    file.write_text(json.dumps(whole[""]))


def test_a_null_of_the_fast_transformer_is_as_in_the_slow_one(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(GOLDENS.folder / "legacy", tmp_path / "legacy"))
    sizes = ("dim", "n_head", "n_local_heads", "head_dim", "intermediate_size")
    for name in sizes:
        change(folder / "config.json", [f"fast_{name}"], None)
    change(folder / "config.json", ["head_dim"], 3 * json.loads((folder / "config.json").read_text())["head_dim"])
    config = read_config(folder)
    assert replace(config.fast, layers=0) == replace(config.slow, layers=0)


@pytest.mark.parametrize("token", ["<|im_start|>", "<|im_end|>", "<|voice|>"])
def test_a_control_token_that_is_missing_is_named(broken: Path, token: str) -> None:
    tokens = json.loads((broken / "tokenizer.json").read_text())["added_tokens"]
    kept = [each for each in tokens if each["content"] != token]
    change(broken / "tokenizer.json", ["added_tokens"], kept)
    assert check(broken) == [f"{broken / 'tokenizer.json'} has no token {token}"]


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors.index.json", "codec.pth"])
def test_a_missing_file_is_named(broken: Path, name: str) -> None:
    (broken / name).unlink()
    (found,) = check(broken)
    assert name in found


def test_a_device_that_is_not_there_is_one_line() -> None:
    with pytest.raises(CannotLoad, match="device 'cuda:9' is not there"):
        load("talker", StageOptions(slots=1, device="cuda:9", checkpoint=CHECKPOINT))


def test_a_stage_tells_what_it_keeps_in_memory_and_is_refused_where_that_does_not_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = StageOptions(slots=4, checkpoint=CHECKPOINT)
    for name in ("talker", "codec", "encode"):
        memory = load(name, options).memory  # type: ignore[attr-defined]
        assert all(size > 0 for size in memory.values()), name
    monkeypatch.setattr(memory_module, "_free", lambda device: 1_000_000)
    for name in ("talker", "codec", "encode"):
        with pytest.raises(CannotLoad, match=r"GB for weights.* do not fit into the 0\.0 GB that cpu has free: \w+"):
            load(name, options)


def test_no_residual_code_is_drawn_that_the_codec_has_not() -> None:
    sizes = np.array(read_codec_config(CHECKPOINT).quantizer.codebooks)
    made = [payload(drive(talker(), spoken(seed=seed))) for seed in range(3)]
    codes = np.concatenate([np.frombuffer(part, "<u2").reshape(-1, len(sizes)) for part in made])
    assert (codes < sizes).all()
    free = talker_stage(read_voice(CHECKPOINT, torch.device("cpu")), EngineOptions(4))
    unbound = np.frombuffer(payload(drive(free, spoken(seed=0))), "<u2").reshape(-1, len(sizes))
    assert (unbound >= sizes).any()  # else nothing is shown by the others
