"""The codec of Fish Speech against golden files: any set of them, whatever its sizes.

The tests are collected where they are imported, beside those of the autoregressive side.
"""

from functools import cache
from typing import Any

import pytest
import torch
from goldens import Goldens
from torch import Tensor
from torch.nn import functional as fn

from speechmill.models.common.checkpoint import Weights
from speechmill.models.common.resample import resample
from speechmill.models.common.rope import Rope, frequencies
from speechmill.models.fish_speech.codec.config import CodecConfig, read_config
from speechmill.models.fish_speech.codec.decoder import Decoder
from speechmill.models.fish_speech.codec.encoder import Encoder
from speechmill.models.fish_speech.codec.weights import open_source, rename

GOLDENS = Goldens("fish_speech")
CHECKPOINT = GOLDENS.folder / "ckpt"
TOLERANCE = 1e-4
CERTAIN = 1e-3
"""Codes whose lead over the second best is smaller may be other ones, and all that follow in their frame."""


@cache
def config() -> CodecConfig:
    return read_config(CHECKPOINT)


@cache
def decoder() -> Decoder:
    return Decoder(Weights(open_source(CHECKPOINT), rename=rename), config())


@cache
def encoder() -> Encoder:
    return Encoder(Weights(open_source(CHECKPOINT), rename=rename), config())


def noise(seed: int, count: int) -> Tensor:
    """The linear congruential noise of the golden files' README."""
    state, values = seed, []
    for _ in range(count):
        state = (1103515245 * state + 12345) % 2**31
        values.append((state >> 15 & 0xFFFF) / 65536 - 0.5)
    return torch.tensor(values)


def decode(codes: Tensor, sizes: list[int] | None = None) -> Tensor:
    """Codes [codebooks, frames] in chunks of these sizes → samples."""
    rows = codes.T
    stream = decoder().streams.open()
    samples = [decoder()([stream], [part])[0] for part in rows.split(sizes or [len(rows)])]
    decoder().streams.close(stream)
    return torch.cat(samples)


def assert_golden(found: Tensor, name: str) -> None:
    torch.testing.assert_close(found, GOLDENS.tensor(name), atol=TOLERANCE, rtol=0)


def test_codes_become_audio() -> None:
    assert_golden(decode(GOLDENS.tensor("codec.codes")), "codec.audio")


def test_what_the_model_spoke_becomes_audio() -> None:
    codes = GOLDENS.tensor("e2e.greedy_clone.0")
    assert_golden(decode(codes), "e2e.greedy_clone.audio")


@pytest.mark.parametrize("size", [1, 3, 7])
def test_codes_in_chunks_become_the_same_audio(size: int) -> None:
    codes = GOLDENS.tensor("codec.codes")
    frames = codes.shape[1]
    sizes = [min(size, frames - start) for start in range(0, frames, size)]
    assert_golden(decode(codes, sizes), "codec.audio")


def test_codes_beyond_a_codebook_are_its_last() -> None:
    assert_golden(decode(GOLDENS.tensor("codec.clamp_codes")), "codec.clamp_audio")


def test_each_step_of_decoding_is_as_it_should_be() -> None:
    made, codes = decoder(), GOLDENS.tensor("codec.codes").T[None]
    stream = made.streams.open()
    batch = made.streams.advance([stream], [codes.shape[1]])
    with torch.inference_mode():
        rows = made.vectors(codes)
        assert_golden(rows[0].T, "codec.z")
        rows = made.post(rows, batch)
        assert_golden(rows[0].T, "codec.post")
        for upsampling in made.waves.upsamplings:
            rows = upsampling(rows, batch)
        assert_golden(rows[0].T, "codec.up")
        rows = made.waves.enter(rows, batch)
        assert_golden(rows[0].T[:, : GOLDENS.tensor("codec.conv0").shape[1]], "codec.conv0")
        rows = made.waves.blocks[0](rows, batch)
        assert_golden(rows[0].T[:, : GOLDENS.tensor("codec.block1").shape[1]], "codec.block1")
    made.streams.close(stream)


def recording(case: dict[str, Any]) -> Tensor:
    samples = noise(case["lcg_seed"], case["samples"])
    return fn.pad(samples, (0, -len(samples) % config().frame_samples))


@pytest.mark.parametrize("blocks", [1, 3], ids=["whole", "in blocks"])
@pytest.mark.parametrize("name", ["short", "long"])
def test_recordings_become_codes(name: str, blocks: int) -> None:
    case = next(each for each in GOLDENS.cases["encode"] if each["name"] == name)
    samples = recording(case)
    frames = len(samples) // config().frame_samples
    assert frames == case["frames"]
    stream = encoder().streams.open()
    size = -(-frames // blocks) * config().frame_samples
    codes = torch.cat([encoder()([stream], [part])[0] for part in samples.split(size)]).T
    encoder().streams.close(stream)
    wanted, margin = GOLDENS.tensor(f"enc.{name}.codes"), GOLDENS.tensor(f"enc.{name}.margin")
    certain = (margin > CERTAIN).cummin(0).values  # a code that is not certain changes what is left for those after it
    assert certain.float().mean() > 0.9
    assert torch.equal(codes[certain], wanted[certain])


@pytest.mark.parametrize(("name", "tail"), [("short", ""), ("long", "_tail")])
def test_each_step_of_encoding_is_as_it_should_be(name: str, tail: str) -> None:
    made = encoder()
    samples = recording(next(each for each in GOLDENS.cases["encode"] if each["name"] == name))
    stream = made.streams.open()
    batch = made.streams.advance([stream], [len(samples) // config().frame_samples])

    def assert_last(rows: Tensor, step: str) -> None:
        wanted = f"enc.{name}.{step}{tail}"
        assert_golden(rows[0].T[:, -GOLDENS.tensor(wanted).shape[1] :], wanted)

    with torch.inference_mode():
        rows = made.enter(samples[None, :, None], batch)
        for block in made.blocks:
            rows = block(rows, batch)
        rows = made.leave(made.snake(rows), batch)
        assert_last(rows, "encoder")
        for downsampling in made.downsamplings:
            rows = downsampling(rows, batch)
        assert_last(rows, "down")
        assert_last(made.pre(rows, batch), "pre")
    made.streams.close(stream)


def test_recordings_come_to_the_codec_s_rate() -> None:
    case = GOLDENS.cases["resample"]
    assert_golden(resample(noise(case["lcg_seed"], case["samples"]), case["src"], case["dst"]), case["out"])


def test_positions_turn_as_in_training() -> None:
    transformer = config().quantizer.transformer.config
    rope = Rope(1008, frequencies(transformer.head_dim, transformer.rope_base), "interleaved", torch.bfloat16)
    wanted = GOLDENS.tensor("rope.codec_1000")
    turns = torch.view_as_real(rope.at(torch.arange(1000, 1000 + len(wanted)))[:, 0])
    torch.testing.assert_close(turns, wanted, atol=1e-6, rtol=0)
