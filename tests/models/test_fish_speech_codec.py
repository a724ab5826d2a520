"""What is Fish Speech's own of its codec: how it reads recordings, and where its weights lie."""

import io
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from codec_families import FISH, log
from driving import as_log, assert_same_audio, drive, drive_together, payload, task
from fish_codec_goldens import CHECKPOINT, GOLDENS, config, encoder, noise
from torch import Tensor

from speechmill.models.common.codec.encoding import EncodeStage
from speechmill.models.common.resample import resample
from speechmill.models.fish_speech.codec import features
from speechmill.models.fish_speech.codec.check import check
from speechmill.models.fish_speech.codec.stages import codec_stage, encode_stage
from speechmill.models.stage import CheckpointError, Resume, SlotFailed, StageOptions


@cache
def encoding() -> EncodeStage:
    return encode_stage(StageOptions(slots=4, checkpoint=CHECKPOINT))


def clip(sound: Tensor, rate: int, container: str = "WAV") -> bytes:
    file = io.BytesIO()
    soundfile.write(file, sound.numpy(), rate, format=container, subtype="FLOAT")
    return file.getvalue()


def codes_of(sound: Tensor) -> Tensor:
    """By the encoder itself, [codebooks, frames]."""
    stream = encoder().streams.open()
    padded = torch.nn.functional.pad(sound, (0, -len(sound) % config().frame_samples))
    codes = encoder()([stream], [padded])[0].T
    encoder().streams.close(stream)
    return codes


def test_recordings_beside_each_other_give_the_codes_that_each_gives_alone() -> None:
    frame, rate = config().frame_samples, config().sample_rate
    sounds = [noise(seed, count) for seed, count in ((1, 70 * frame), (2, 5 * frame + 3), (3, 1))]
    tasks = [task("", assets={"clip": clip(sound, rate)}) for sound in sounds]
    for sound, made in zip(sounds, drive_together(encoding(), [(each, []) for each in tasks]), strict=True):
        found, wanted = features.unpack(payload(made)), codes_of(sound).numpy()
        assert found.shape == (len(config().quantizer.codebooks), -(-len(sound) // frame))
        assert (found == wanted).all(axis=0).mean() > 0.95  # a code between two equals may fall either way


def test_a_recording_at_another_rate_comes_to_the_codec_s_own() -> None:
    sound = noise(5, 9000)
    made = drive(encoding(), task("", assets={"clip": clip(sound, 24000)}))
    wanted = codes_of(resample(sound, 24000, config().sample_rate)).numpy()
    assert np.array_equal(features.unpack(payload(made)), wanted)


def test_a_resumed_encoding_says_nothing_again() -> None:
    whole = task("", assets={"clip": clip(noise(6, 5000), config().sample_rate)})
    made = drive(encoding(), whole)
    assert [emission.frames for emission in made] == [1]
    again = drive(encoding(), whole, resume=Resume(end=as_log(made)[-1].end))
    assert payload(again) == b""


@pytest.mark.parametrize("bad", [b"", b"RIFF", clip(torch.zeros(0), 24000)], ids=["nothing", "no WAV", "no samples"])
def test_what_is_no_recording_is_refused(bad: bytes) -> None:
    with pytest.raises(SlotFailed, match="recording") as failure:
        encoding().open(0, task("", assets={"clip": bad}), Resume())
    assert failure.value.code == "invalid_value"


def test_codes_survive_the_store() -> None:
    codes = GOLDENS.tensor("codec.codes").numpy()
    assert np.array_equal(features.unpack(features.pack(codes)), codes)


@pytest.mark.parametrize("bad", [b"", b"\x02" + bytes(7), features.pack(np.zeros((2, 3), np.int64))[:-1]], ids=len)
def test_a_damaged_payload_of_codes_is_refused(bad: bytes) -> None:
    with pytest.raises(ValueError, match="fish_speech"):
        features.unpack(bad)


def test_a_folder_without_a_codec_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"codec\.pth"):
        codec_stage(StageOptions(slots=1, checkpoint=tmp_path))


def rewritten(folder: Path, change: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> Path:
    """The goldens' codec with other tensors, wrapped and named as by some trainers."""
    tensors = change(torch.load(CHECKPOINT / "codec.pth", weights_only=True))
    torch.save({"state_dict": {f"generator.{key}": tensor for key, tensor in tensors.items()}}, folder / "codec.pth")
    shutil.copy(CHECKPOINT / "codec_config.json", folder)
    return folder


def folded(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Without weight norm, and with a tensor that nobody needs."""
    plain = {"unknown.weight": torch.zeros(3)}
    for key, tensor in tensors.items():
        stem, _, part = key.rpartition(".parametrizations.weight.original")
        if part == "1":
            norm = tensor.flatten(1).norm(dim=1).view(-1, 1, 1)
            plain[f"{stem}.weight"] = tensors[f"{stem}.parametrizations.weight.original0"] * tensor / norm
        elif not stem:
            plain[key] = tensor
    return plain


def test_weights_are_found_in_every_spelling(tmp_path: Path) -> None:
    folder = rewritten(tmp_path, folded)
    assert check(folder) == []
    codes = FISH.codes(5)
    made = drive(codec_stage(StageOptions(slots=1, checkpoint=folder)), task(""), log(codes))
    assert_same_audio(made, FISH.heard(codes))


def test_what_is_missing_or_misshapen_is_named(tmp_path: Path) -> None:
    missing, misshapen = "quantizer.post_module.norm.weight", "decoder.model.0.conv.bias"

    def damaged(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        return {key: tensor for key, tensor in tensors.items() if key != missing} | {misshapen: torch.zeros(2)}

    folder = rewritten(tmp_path, damaged)
    findings = check(folder)
    assert len(findings) == 2
    assert any(missing in finding and "missing" in finding for finding in findings)
    assert any(misshapen in finding and "[2]" in finding for finding in findings)
    with pytest.raises(CheckpointError, match=missing):
        codec_stage(StageOptions(slots=1, checkpoint=folder))


def test_a_codec_config_with_a_wrong_value_is_named(tmp_path: Path) -> None:
    (tmp_path / "codec_config.json").write_text('{"sample_rate": "fast"}')
    assert [finding.partition(": ")[2].partition(":")[0] for finding in check(tmp_path)] == ["sample_rate"]
