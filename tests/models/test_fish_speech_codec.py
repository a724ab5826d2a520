"""Fish Speech's codec as stages: chunks, neighbours and interruptions change nothing that is heard."""

import io
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from driving import as_log, assert_same_audio, drive, drive_together, length, payload, task
from fish_codec_goldens import CHECKPOINT, GOLDENS, config, decode, encoder, noise
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from speechmill.models.common.carry import Carry, Streams
from speechmill.models.common.checkpoint import CheckpointError
from speechmill.models.common.codec.encoding import EncodeStage
from speechmill.models.common.codec.stage import CodecStage
from speechmill.models.common.convolution import CausalConvolution
from speechmill.models.common.pcm import to_s16
from speechmill.models.common.resample import resample
from speechmill.models.fish_speech.codec import features
from speechmill.models.fish_speech.codec.check import check
from speechmill.models.fish_speech.codec.stages import codec_stage, encode_stage
from speechmill.models.stage import Chunk, Emission, Resume, SlotFailed, StageOptions

LIVE = (1, 2, 4, 7)
SEVERAL = settings(max_examples=10)


@cache
def stage(live: tuple[int, ...] = LIVE, bulk: int = 0) -> CodecStage:
    return codec_stage(StageOptions(slots=8, live_chunks=live, bulk_chunk=bulk, checkpoint=CHECKPOINT))


@cache
def encoding() -> EncodeStage:
    return encode_stage(StageOptions(slots=4, checkpoint=CHECKPOINT))


def spoken(frames: int, seed: int = 0) -> Tensor:
    """Random codes [frames, codebooks]."""
    random = torch.Generator().manual_seed(seed)
    return torch.stack([torch.randint(size, (frames,), generator=random) for size in config().quantizer.codebooks], 1)


def log(codes: Tensor, sizes: list[int] | None = None) -> list[Chunk]:
    """Codes as a log of chunks of these sizes, the last of which takes the rest."""
    chunks, start = [], 0
    for size in [*(sizes or []), len(codes)]:
        end = min(start + size, len(codes))
        piece = codes[start:end].numpy().astype("<u2").tobytes()
        chunks.append(Chunk(start, end, piece, final=end == len(codes)))
        start = end
        if chunks[-1].final:
            break
    return chunks


def heard(codes: Tensor) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.frombuffer(to_s16(decode(codes.T)), "<i2").astype(np.int32)


sizes = st.lists(st.integers(1, 9), max_size=8)


@SEVERAL
@given(st.integers(1, 30), sizes, st.lists(st.integers(1, 9), min_size=1, max_size=3), st.booleans())
def test_any_chunks_give_the_audio_of_one_call(frames: int, arriving: list[int], chunks: list[int], live: bool) -> None:
    codes = spoken(frames, frames)
    made = drive(stage(tuple(chunks)), task("", live=live), log(codes, arriving))
    assert length(made) == frames * config().frame_samples
    assert len(payload(made)) == 2 * length(made)
    assert_same_audio(made, heard(codes))


@SEVERAL
@given(st.lists(st.tuples(st.integers(1, 24), sizes, st.booleans()), min_size=2, max_size=5))
def test_neighbours_at_other_places_change_nothing(work: list[tuple[int, list[int], bool]]) -> None:
    codes = [spoken(frames, seed) for seed, (frames, _, _) in enumerate(work)]
    together = drive_together(
        stage(),
        [(task("", live=live), log(each, arriving)) for each, (_, arriving, live) in zip(codes, work, strict=True)],
    )
    for found, each in zip(together, codes, strict=True):
        assert_same_audio(found, heard(each))


@SEVERAL
@given(st.data())
def test_a_stream_is_resumed_at_any_sample(data: st.DataObject) -> None:
    frames = data.draw(st.integers(1, 70))
    end = data.draw(st.integers(0, frames * config().frame_samples))
    codes = spoken(frames, frames)
    made = drive(stage(), task("", live=data.draw(st.booleans())), log(codes, data.draw(sizes)), Resume(end))
    assert_same_audio(made, heard(codes)[end:])


@SEVERAL
@given(st.data())
def test_codes_that_come_while_a_resumed_stream_is_stepped_change_nothing(data: st.DataObject) -> None:
    frames = data.draw(st.integers(1, 70))
    end = data.draw(st.integers(0, frames * config().frame_samples))
    codes, made = spoken(frames, frames), list[Emission]()
    stage().open(0, task("", live=True), Resume(end))
    for chunk in log(codes, [data.draw(st.integers(1, 9))] * frames):
        stage().feed(0, chunk)
        while not (made and made[-1].final) and stage().runnable(0):
            made += stage().step([0])
    stage().close(0)
    assert_same_audio(made, heard(codes)[end:])


def test_a_resumed_stream_does_not_read_the_whole_log_again() -> None:
    resumed = codec_stage(StageOptions(slots=1, live_chunks=LIVE, checkpoint=CHECKPOINT))
    seen = resumed._decoder.latent_reach + resumed._decoder.wave_reach
    codes, end = spoken(seen + 40), (seen + 30) * config().frame_samples
    resumed.open(0, task("", live=True), Resume(end))
    for chunk in log(codes, [7] * 100):
        resumed.feed(0, chunk)
    assert len(resumed._slots[0].waiting) == seen + 10


def test_what_is_heard_first_is_heard_after_the_first_small_chunk() -> None:
    codes = spoken(20)
    made = drive(stage(), task("", live=True), log(codes))
    assert [emission.frames // config().frame_samples for emission in made] == [1, 2, 4, 7, 6]


def test_a_slot_that_waits_for_codes_is_not_runnable() -> None:
    waiting, chunks = stage((4,)), log(spoken(6), [3])
    waiting.open(3, task("", live=True), Resume())
    waiting.feed(3, Chunk(0, 3, chunks[0].payload))
    assert not waiting.runnable(3)
    waiting.feed(3, chunks[1])
    assert waiting.runnable(3)
    waiting.close(3)


def test_a_log_without_codes_makes_no_audio() -> None:
    made = drive(stage(), task(""), [Chunk(0, 0, final=True)])
    assert [(emission.frames, emission.final) for emission in made] == [(0, True)]


def test_one_step_is_bounded_however_much_waits() -> None:
    busy = codec_stage(StageOptions(slots=3, checkpoint=CHECKPOINT))
    for slot in range(3):
        busy.open(slot, task(""), Resume())
        busy.feed(slot, log(spoken(50))[0])
    first = busy.step([2, 0, 1])
    assert [emission.slot for emission in first] == [2]


def test_codes_beyond_what_positions_reach_are_refused() -> None:
    refusing = stage()
    refusing.open(5, task(""), Resume())
    with pytest.raises(SlotFailed, match="frames at once"):
        refusing.feed(5, Chunk(1 << 16, (1 << 16) + 1, bytes(2 * len(config().quantizer.codebooks))))
    refusing.close(5)


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
    codes = spoken(5)
    made = drive(codec_stage(StageOptions(slots=1, checkpoint=folder)), task(""), log(codes))
    assert_same_audio(made, heard(codes))


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


@given(st.integers(1, 3), st.integers(1, 6), st.integers(1, 3), st.lists(st.integers(1, 4), min_size=1, max_size=5))
def test_a_convolution_in_chunks_is_torch_s_padded_one(
    stride: int, width: int, channels: int, chunks: list[int]
) -> None:
    width = max(width, stride)
    random = torch.Generator().manual_seed(width)
    rows = torch.randn(1, stride * sum(chunks), channels, generator=random)
    weight, bias = torch.randn(2, channels, width, generator=random), torch.randn(2, generator=random)
    carry = Carry(stride)
    layer = CausalConvolution.strided(weight, bias, carry, stride)
    wanted = torch.nn.functional.conv1d(torch.nn.functional.pad(rows.mT, (width - stride, 0)), weight, bias, stride)
    torch.testing.assert_close(_streamed(layer, carry, rows, [stride * size for size in chunks], chunks), wanted.mT)


@given(st.integers(1, 3), st.integers(1, 6), st.lists(st.integers(1, 4), min_size=1, max_size=5))
def test_a_transposed_convolution_in_chunks_is_torch_s_without_its_tail(
    stride: int, width: int, chunks: list[int]
) -> None:
    width = max(width, stride)
    random = torch.Generator().manual_seed(width)
    rows = torch.randn(1, sum(chunks), 3, generator=random)
    weight, bias = torch.randn(3, 2, width, generator=random), torch.randn(2, generator=random)
    carry = Carry()
    layer = CausalConvolution.transposed(weight, bias, carry, stride)
    wanted = torch.nn.functional.conv_transpose1d(rows.mT, weight, bias, stride).mT[:, : stride * sum(chunks)]
    torch.testing.assert_close(_streamed(layer, carry, rows, chunks, chunks), wanted)


def _streamed(layer: CausalConvolution, carry: Carry, rows: Tensor, cuts: list[int], frames: list[int]) -> Tensor:
    streams = Streams(carry, torch.device("cpu"))
    stream = streams.open()
    answers = [
        layer(part, streams.advance([stream], [count])) for part, count in zip(rows.split(cuts, 1), frames, strict=True)
    ]
    return torch.cat(answers, 1)
