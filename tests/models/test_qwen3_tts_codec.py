"""What is Qwen3-TTS's own of its codec: streams that go on from a reference, and what is made of recordings."""

import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from codec_families import QWEN, log
from driving import as_log, assert_same_audio, drive, drive_together, payload, task
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from qwen_codec_goldens import cases, checkpoint, config, encode, encoder, speaker, stored, wav
from safetensors.torch import load_file, save_file
from torch import Tensor

from speechmill.models.common import memory
from speechmill.models.common.checkpoint import Weights
from speechmill.models.common.codec.encoding import EncodeStage
from speechmill.models.common.resample import resample_by_soxr
from speechmill.models.qwen3_tts.codec.check import check
from speechmill.models.qwen3_tts.codec.config import LONGEST_S, read_config
from speechmill.models.qwen3_tts.codec.encoder import Encoder
from speechmill.models.qwen3_tts.codec.stages import codec_stage, encode_stage
from speechmill.models.qwen3_tts.codec.weights import open_source
from speechmill.models.qwen3_tts.features import Reference, pack, unpack
from speechmill.models.stage import CannotLoad, CheckpointError, Emission, Resume, SlotFailed, StageOptions, StageTask

SEVERAL = settings(max_examples=8)
sizes = st.lists(st.integers(1, 9), max_size=8)


def reference(frames: int, seed: int = 99) -> Tensor:
    return QWEN.codes(frames, seed)


def spoken(heard: Tensor, **changes: Any) -> StageTask:
    """A task whose voice was heard saying these codes."""
    features = pack(Reference(np.zeros(4, np.float32), heard.numpy().astype(np.uint16)))
    return task("", assets={"features": features}, **changes)


def going_on(heard: Tensor, codes: Tensor) -> NDArray[np.int32]:
    return QWEN.heard(torch.cat([heard, codes]))[len(heard) * QWEN.frame_samples :]


@SEVERAL
@given(st.data())
def test_a_stream_goes_on_from_its_reference_in_any_chunks_and_from_any_sample(data: st.DataObject) -> None:
    heard, codes = reference(data.draw(st.integers(1, 60))), QWEN.codes(data.draw(st.integers(1, 40)))
    end = data.draw(st.just(0) | st.integers(0, len(codes) * QWEN.frame_samples))
    live = data.draw(st.booleans())
    made = drive(QWEN.stage(), spoken(heard, live=live), log(codes, data.draw(sizes)), Resume(end))
    assert_same_audio(made, going_on(heard, codes)[end:])


def test_streams_with_and_without_a_reference_share_a_batch() -> None:
    voices, codes = (
        [reference(30), reference(0), reference(3, 5)],
        [QWEN.codes(9, 1), QWEN.codes(12, 2), QWEN.codes(7, 3)],
    )
    tasks = [spoken(heard, live=True) if len(heard) else task("", live=True) for heard in voices]
    together = drive_together(QWEN.stage(), [(each, log(said)) for each, said in zip(tasks, codes, strict=True)])
    for made, heard, said in zip(together, voices, codes, strict=True):
        assert_same_audio(made, going_on(heard, said))


def test_a_reference_is_heard_before_the_first_codes_come_and_none_of_it_is_emitted() -> None:
    stage, heard, codes = QWEN.load(), reference(600), QWEN.codes(3)  # longer than what one step takes
    stage.open(0, spoken(heard, live=True), Resume())
    steps = 0
    while stage.runnable(0):
        assert stage.step([0]) == []
        steps += 1
    assert steps > 1
    stage.feed(0, log(codes)[0])
    made: list[Emission] = []
    while not (made and made[-1].final):
        made += stage.step([0])
    assert_same_audio(made, going_on(heard, codes))


def test_whoever_dies_while_it_hears_the_reference_leaves_nothing_behind() -> None:
    stage, heard, codes = QWEN.load(), reference(40), QWEN.codes(5)
    stage.open(0, spoken(heard, live=True), Resume())
    stage.step([0])
    stage.close(0)
    assert_same_audio(drive(stage, spoken(heard, live=True), log(codes)), going_on(heard, codes))
    assert_same_audio(drive(stage, task("", live=True), log(codes)), QWEN.heard(codes))


@pytest.mark.parametrize("params", [{"voice_mode": "xvec"}, {"x_vector_only_mode": True}], ids=str)
def test_a_reference_whose_timbre_alone_is_wanted_is_not_heard(params: dict[str, Any]) -> None:
    codes = QWEN.codes(4)
    assert_same_audio(drive(QWEN.stage(), spoken(reference(9), params=params), log(codes)), QWEN.heard(codes))


def test_a_reference_of_another_model_is_refused() -> None:
    entries, books = config().decoder.entries, config().decoder.codebooks
    for foreign in (torch.full((3, books), entries), torch.zeros(3, books + 1, dtype=torch.int64)):
        with pytest.raises(SlotFailed, match="another model") as failure:
            QWEN.stage().open(0, spoken(foreign), Resume())
        assert failure.value.code == "invalid_value"


# -- recordings -----------------------------------------------------------------------------------------------------


@cache
def encoding() -> EncodeStage:
    return encode_stage(StageOptions(slots=4, checkpoint=checkpoint()))


def noise(seed: int, samples: int) -> Tensor:
    return torch.randn(samples, generator=torch.Generator().manual_seed(seed)) / 5


def recorded(sound: Tensor, rate: int, mode: str = "icl") -> StageTask:
    return task("", params={"mode": mode}, assets={"clip": wav(sound, rate)})


@cases("voice_clone_prompt")
def test_what_is_made_of_a_recording_is_upstreams(case: dict[str, Any]) -> None:
    sound, rate = stored(case, "ref_audio"), case["inputs"]["sample_rate"]
    for mode in ("icl", "xvec"):
        found = unpack(payload(drive(encoding(), recorded(sound, rate, mode))))
        wanted = stored(case, "speaker_embedding").numpy()
        np.testing.assert_allclose(found.embedding, wanted, rtol=0, atol=case["atol"])
        if mode == "xvec":
            assert found.codes is None
        else:
            assert found.codes is not None
            assert np.array_equal(found.codes, stored(case, "ref_code").numpy())


def test_recordings_beside_each_other_give_what_each_gives_alone() -> None:
    rate, frame = config().sample_rate, QWEN.frame_samples
    short = max(2 * frame - 1, speaker().shortest)
    sounds = [noise(seed, samples) for seed, samples in ((1, 70 * frame), (2, 5 * frame + 3), (3, short))]
    tasks = [recorded(sound, rate) for sound in sounds] + [recorded(sounds[0], rate, "xvec")]
    *heard, timbre = (unpack(payload(made)) for made in drive_together(encoding(), [(each, []) for each in tasks]))
    for found, sound in zip(heard, sounds, strict=True):
        wanted = encode(encoder(), sound).numpy()
        assert found.codes is not None
        assert found.codes.shape == wanted.shape == (-(-len(sound) // frame), config().encoder.codebooks)
        assert (found.codes == wanted).mean() > 0.95  # a code between two equals may fall either way
        assert np.array_equal(found.embedding, speaker()(sound).numpy())
    assert timbre.codes is None


def test_a_recording_at_another_rate_comes_to_the_models_own() -> None:
    sound = noise(5, 20_000)
    found = unpack(payload(drive(encoding(), recorded(sound, 16_000))))
    wanted = resample_by_soxr(sound, 16_000, config().sample_rate)
    assert found.codes is not None
    assert np.array_equal(found.codes, encode(encoder(), wanted).numpy())
    assert np.array_equal(found.embedding, speaker()(wanted).numpy())


def test_a_resumed_encoding_says_nothing_again() -> None:
    whole = recorded(noise(6, 5000), config().sample_rate)
    made = drive(encoding(), whole)
    assert [emission.frames for emission in made] == [1]
    assert payload(drive(encoding(), whole, resume=Resume(end=as_log(made)[-1].end))) == b""


def test_an_encoding_stage_warms_up_and_leaves_no_slot_behind() -> None:
    encoding().warm()
    assert not encoding()._slots


def test_an_encoding_stage_warms_up_however_much_a_step_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding(), "_block", 2 * LONGEST_S * config().sample_rate // QWEN.frame_samples)
    encoding().warm()


REFUSED = {
    "no WAV": task("", params={"mode": "icl"}, assets={"clip": b"RIFF"}),
    "no samples": recorded(torch.zeros(0), 24_000),
    "too short": recorded(torch.zeros(50), 24_000, "xvec"),
    "too long": recorded(torch.zeros(LONGEST_S * 8000 + 1), 8000),
    "unknown mode": recorded(torch.zeros(9000), 24_000, "codes"),
}


@pytest.mark.parametrize("refused", REFUSED.values(), ids=REFUSED.keys())
def test_a_recording_that_cannot_be_used_is_refused(refused: StageTask) -> None:
    with pytest.raises(SlotFailed, match=r"recording|mode") as failure:
        encoding().open(0, refused, Resume())
    assert failure.value.code == "invalid_value"


# -- checkpoints ----------------------------------------------------------------------------------------------------


def copied(
    folder: Path, change: Callable[[dict[str, Any]], None], tensors: dict[str, Tensor | None] | None = None
) -> Path:
    """The goldens' codec with another config, and with other tensors or without."""
    made = folder / "speech_tokenizer"
    shutil.copytree(checkpoint() / "speech_tokenizer", made)
    told = json.loads((made / "config.json").read_text())
    change(told)
    (made / "config.json").write_text(json.dumps(told))
    if tensors:
        kept = load_file(made / "model.safetensors") | tensors
        save_file({key: tensor for key, tensor in kept.items() if tensor is not None}, made / "model.safetensors")
    return folder


def test_what_is_missing_or_misshapen_is_named(tmp_path: Path) -> None:
    missing, misshapen = "decoder.pre_transformer.norm.weight", "encoder.downsample.conv.weight"
    folder = copied(tmp_path, lambda told: None, {missing: None, misshapen: torch.zeros(2)})
    findings = check(folder)
    assert len(findings) == 2
    assert any("norm.weight" in finding and "missing" in finding for finding in findings)
    assert any(misshapen in finding and "[2]" in finding for finding in findings)
    with pytest.raises(CheckpointError, match=r"norm\.weight"):
        codec_stage(StageOptions(slots=1, checkpoint=folder))


def test_stages_tell_what_they_keep_in_memory_and_are_refused_where_that_does_not_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = StageOptions(slots=4, checkpoint=checkpoint())
    assert set(codec_stage(options).memory) == {"weights", "streams", "a step"}
    assert encode_stage(options).memory["the speaker encoder"] > 0
    monkeypatch.setattr(memory, "_free", lambda device: 1_000)
    for make in (codec_stage, encode_stage):
        with pytest.raises(CannotLoad, match=r"GB for weights.* do not fit"):
            make(options)


def test_a_checkpoint_that_fits_has_no_findings() -> None:
    assert check(checkpoint()) == []


@pytest.mark.parametrize(
    ("part", "change", "named"),
    [
        ("", {"model_type": "mimi"}, "model_type"),
        ("", {"input_sample_rate": 16000}, "input_sample_rate"),
        ("", {"encoder_valid_num_quantizers": 1000}, "encoder_valid_num_quantizers"),
        ("", {"decoder_config": 5}, "decoder_config"),
        ("decoder_config", {"upsample_rates": [8, 5, 4]}, "frames of different lengths"),
        ("decoder_config", {"codebook_size": 1}, "different codebooks"),
        ("decoder_config", {"sliding_window": 0}, "sliding_window"),
        ("encoder_config", {"num_semantic_quantizers": 2}, "num_semantic_quantizers"),
        ("encoder_config", {"use_sliding_window": "yes"}, "use_sliding_window"),
        ("encoder_config", {"pad_mode": "reflect"}, 'pad_mode is "reflect"; only "constant"'),
        ("encoder_config", {"use_causal_conv": False}, "use_causal_conv"),
        ("encoder_config", {"use_conv_shortcut": True}, "use_conv_shortcut"),
        ("encoder_config", {"hidden_act": "silu"}, "hidden_act"),
        ("decoder_config", {"attention_bias": True}, "attention_bias"),
        ("decoder_config", {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "rope_type"),
    ],
    ids=str,
)
def test_a_config_that_cannot_be_is_told_by_its_field(
    tmp_path: Path, part: str, change: dict[str, Any], named: str
) -> None:
    (finding,) = check(copied(tmp_path, lambda told: (told[part] if part else told).update(change)))
    assert named in finding
    assert "config.json" in finding


def test_the_encoder_hears_all_of_the_past_if_its_config_asks_for_no_window(tmp_path: Path) -> None:
    windowed = read_config(copied(tmp_path, lambda told: told["encoder_config"].update(use_sliding_window=True)))
    window = windowed.encoder.transformer.window
    made = Encoder(Weights(open_source(tmp_path)), windowed.encoder)
    per_row = windowed.encoder.frame_samples // 2
    short, long = noise(1, window * per_row), noise(1, 3 * window * per_row)
    assert torch.equal(encode(made, short), encode(encoder(), short))
    assert not torch.equal(encode(made, long), encode(encoder(), long))
