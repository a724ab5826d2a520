"""Qwen3-TTS's codec against upstream's, for whichever set of goldens there is."""

from typing import Any

import numpy as np
import pytest
import torch
from codec_families import log
from driving import assert_same_audio, drive, payload, task
from qwen_codec_goldens import GOLDENS, assert_close, cases, checkpoint, decode, decoder, encode, encoder, stored, wav
from torch import Tensor
from torch.nn import functional as fn

from speechmill.models.common.pcm import to_s16
from speechmill.models.qwen3_tts.codec.encoder import Ends
from speechmill.models.qwen3_tts.codec.stages import codec_stage, encode_stage
from speechmill.models.stage import StageOptions


@pytest.mark.parametrize("size", [0, 1, 3, 7])
@cases("codec_decode")
def test_codes_become_audio_in_any_chunks(case: dict[str, Any], size: int) -> None:
    assert_close(case, decode(decoder(case["checkpoint"]), stored(case, "codes")[0].T, size)[None], "wav")


@cases("codec_decode")
def test_each_step_of_decoding_is_as_it_should_be(case: dict[str, Any]) -> None:
    made, codes = decoder(case["checkpoint"]), stored(case, "codes").mT
    stream = made.streams.open()
    batch = made.streams.advance([stream], [codes.shape[1]])
    with torch.inference_mode():
        rows = made.vectors(codes)
        assert_close(case, rows[0].T, "quantized")
        assert_close(case, made.mix(rows, batch)[0].T, "pre_conv")
        made.streams.close(stream)
        stream = made.streams.open()  # what is carried of the convolution was taken
        rows = made.latents(codes, batch)
        assert_close(case, rows[0], "pre_transformer")
        for index, upsampling in enumerate(made.waves.upsamplings):
            rows = upsampling(rows, batch)
            assert_close(case, rows[0].T, f"upsample_{index}")
        rows = made.waves.enter(rows, batch)
        assert_close(case, rows[0].T, "conv_in")
        assert_close(case, made.waves.blocks[0](rows, batch)[0].T, "block_1_head", head=True)
    made.streams.close(stream)


@cases("codec_decode_chunked")
def test_pieces_that_know_a_little_of_the_past_become_upstreams_approximation(case: dict[str, Any]) -> None:
    made, codes = decoder(case["checkpoint"]), stored(case, "codes")[0].T
    size, context = case["inputs"]["chunk_size"], case["inputs"]["left_context_size"]
    pieces: list[Tensor] = []
    for start in range(size, len(codes), size):
        before = min(context, start)
        samples = decode(made, codes[start - before : start + size])
        pieces.append(samples[before * made.frame_samples :])
    assert_close(case, torch.cat(pieces)[None], "wav")


@cases("codec_decode_batch")
def test_rows_of_a_batch_become_audio_beside_each_other(case: dict[str, Any]) -> None:
    made, codes = decoder(case["checkpoint"]), stored(case, "codes")[0].T
    rows = [codes[first:last] for first, last in case["inputs"]["rows"]]
    streams = [made.streams.open() for _ in rows]
    together = made(streams, rows)
    for index, (stream, row, samples) in enumerate(zip(streams, rows, together, strict=True)):
        made.streams.close(stream)
        torch.testing.assert_close(samples, decode(made, row), rtol=0, atol=case["atol"])
        if f"wav_{index}" in case["outputs"]:
            assert_close(case, samples, f"wav_{index}", head=True)


SPOKEN = [
    pytest.param(case, index, id=f"{case['name']}.{index}")
    for case in GOLDENS.of_kinds("e2e_greedy")
    for index in range(len(case["frames"]))
    if f"wav_{index}" in case["outputs"]
]


@pytest.mark.parametrize(("case", "index"), SPOKEN)
def test_what_the_talker_says_becomes_audio(case: dict[str, Any], index: int) -> None:
    """In context it goes on from the reference, of which nothing is heard."""
    made, codes = decoder(case["checkpoint"]), stored(case, f"codes_{index}")
    before = codes[:0]
    if mode(case) == "icl":
        voices = {voice["inputs"]["ref_audio"]: voice for voice in GOLDENS.of_kinds("voice_clone_prompt")}
        before = stored(voices[case["inputs"]["ref_audio"]], "ref_code")
    found = decode(made, torch.cat([before, codes]))[len(before) * made.frame_samples :]
    torch.testing.assert_close(found, of_codes(case, index), rtol=0, atol=case["atol"])


def of_codes(case: dict[str, Any], index: int) -> Tensor:
    """The waveform that belongs to a row's codes.

    Upstream cuts the reference's off by its share of the whole, in floating point: now and then one sample too early.
    """
    samples = len(stored(case, f"codes_{index}")) * decoder(case["checkpoint"]).frame_samples
    wanted = stored(case, f"wav_{index}").flatten()
    assert len(wanted) - samples in (0, 1)
    return wanted[-samples:]


@pytest.mark.parametrize(("case", "index"), SPOKEN)
def test_stages_make_the_same_of_a_recording_and_of_what_the_talker_says(case: dict[str, Any], index: int) -> None:
    folder, assets = checkpoint(case["checkpoint"]), {}
    if mode(case):
        recording, rate = stored(case, "ref_audio"), case["inputs"]["sample_rate"]
        encoding = encode_stage(StageOptions(slots=1, checkpoint=folder))
        asked = task("", params={"mode": mode(case)}, assets={"clip": wav(recording, rate)})
        assets = {"features": payload(drive(encoding, asked))}
    codec = codec_stage(StageOptions(slots=1, live_chunks=(1, 2, 4), checkpoint=folder))
    codes = stored(case, f"codes_{index}")
    for live in (True, False):
        made = drive(codec, task("", live=live, assets=assets), log(codes))
        wanted = to_s16(of_codes(case, index).clone())
        assert_same_audio(made, np.frombuffer(wanted, "<i2").astype(np.int32))


def mode(case: dict[str, Any]) -> str:
    """How a case hears its reference; "" if it has none."""
    inputs = case["inputs"]
    if "ref_audio" not in inputs:
        return ""
    return "icl" if inputs.get("ref_text") and not inputs.get("x_vector_only_mode") else "xvec"


@pytest.mark.parametrize("size", [0, 1, 5])
@cases("codec_encode")
def test_recordings_become_codes_in_any_blocks(case: dict[str, Any], size: int) -> None:
    samples = stored(case, "audio")[: case["inputs"]["samples"]]
    assert torch.equal(encode(encoder(case["checkpoint"]), samples, size), stored(case, "codes"))


@cases("codec_encode")
def test_each_step_of_encoding_is_as_it_should_be(case: dict[str, Any]) -> None:
    made, samples = encoder(case["checkpoint"]), stored(case, "audio")[: case["inputs"]["samples"]]
    frames = -(-len(samples) // made.frame_samples)
    stream = made.streams.open()
    batch, ends = made.streams.advance([stream], [frames]), Ends([samples], made.frame_samples, made.device)
    padded = fn.pad(samples, (0, frames * made.frame_samples - len(samples)))

    def compare(rows: Tensor, name: str) -> None:
        """Rows behind the recording's end mean nothing."""
        if name in case["outputs"]:
            assert_close(case, rows[0].T, name, head=True)

    with torch.inference_mode():
        rows = made.convolve(padded[None, :, None], batch, ends)
        compare(rows, "conv")
        rows = made.transformer(rows, batch)
        compare(rows, "transformer")
        compare(made.downsample(ends.repeated(rows), batch), "downsample")
    made.streams.close(stream)


@cases("codec_encode_batch")
def test_recordings_of_a_batch_become_upstreams_codes(case: dict[str, Any]) -> None:
    """Upstream fills the shorter ones with zeros and takes what it finds for them."""
    made, lengths = encoder(case["checkpoint"]), case["inputs"]["samples"]
    streams = [made.streams.open() for _ in lengths]
    padded = [fn.pad(stored(case, "audio")[:length], (0, max(lengths) - length)) for length in lengths]
    for index, codes in enumerate(made(streams, padded)):
        made.streams.close(streams[index])
        wanted = stored(case, f"codes_{index}")
        assert len(wanted) == -(-lengths[index] // made.frame_samples)
        assert torch.equal(codes[: len(wanted)], wanted)
