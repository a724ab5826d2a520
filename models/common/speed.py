"""How quick a talker and a codec are, with weights left to chance, beside what the device allows."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np
import torch
from torch import Tensor

from speechmill.models.common.codec.decoder import Decoder
from speechmill.models.common.device import exact_convolutions, talker_dtype
from speechmill.models.common.engine.engine import Engine, EngineOptions
from speechmill.models.common.engine.model import Codes, FrameModel, Request
from speechmill.models.common.measure import Figure, Rates, best_s, mean_s, measure_rates

REFERENCE, TEXT = 200, 300
"""Columns of a prompt."""
PROMPT = REFERENCE + TEXT
FRAMES = 256
"""More than are made of any request."""
STEPS = {"cpu": 8, "cuda": 100}
PIECE = 25
"""Frames that the codec takes at once in the middle of a stream."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A family's networks, and what one frame costs them at least."""

    talker: FrameModel
    decoder: Decoder
    request: Callable[[int], Request]
    """By a seed: a prompt of `PROMPT` columns, of which `REFERENCE` are a recording's; no two share one."""
    step_parameters: int
    """That one step has to read, however many rows it has."""
    codec_flops: float
    """Of one frame."""
    frames_per_s: float
    first_frames: int
    """That the codec takes for a stream's first samples."""


def measure_speed(
    subject_of: Callable[[torch.dtype], Subject], device: torch.device, batches: Sequence[int]
) -> Iterator[Figure]:
    """`subject_of`: the family with a talker in the dtype; codecs are in float32."""
    dtype = talker_dtype(device)
    rates = measure_rates(device, dtype)
    codec_rates = rates if dtype is torch.float32 else measure_rates(device, torch.float32)
    yield Figure("copy bandwidth", rates.bytes_per_s / 1e9, "GB/s")
    yield Figure(f"matrix product, {str(dtype).removeprefix('torch.')}", rates.flops_per_s / 1e12, "TFLOP/s")
    exact_convolutions(device)
    with torch.inference_mode():
        subject = subject_of(dtype)
        yield from _first_audio(subject)
        for batch in batches:
            yield from _batch(subject, rates, codec_rates, batch)


def _first_audio(subject: Subject) -> Iterator[Figure]:
    """The prompt alone, and everything until the first samples are there, of a stream that nobody stands beside."""
    decoder, device = subject.decoder, subject.talker.kv.device
    engine, seeds, codes = _engine(subject, 1), count(), _codes(decoder, subject.first_frames)

    def begin() -> None:
        engine.open(0, subject.request(next(seeds)), _nothing(subject))
        while not engine.step([0]):
            pass

    def sound() -> None:
        begin()
        for _ in range(subject.first_frames - 1):
            engine.step([0])
        stream = decoder.streams.open()
        decoder([stream], [codes])
        decoder.streams.close(stream)
        engine.close(0)

    def prompt() -> None:
        begin()
        engine.close(0)

    yield Figure(f"prefill of {PROMPT} and one frame", 1000 * best_s(device, prompt), "ms")
    yield Figure("first audio", 1000 * best_s(device, sound), "ms")


def _batch(subject: Subject, rates: Rates, codec_rates: Rates, batch: int) -> Iterator[Figure]:
    device = subject.talker.kv.device
    engine, slots = _engine(subject, batch), list(range(batch))
    for slot in slots:
        engine.open(slot, subject.request(slot), _nothing(subject))
    while len(engine.step(slots)) < batch:
        pass
    engine.step(slots)
    steps = STEPS[device.type]
    step_s = mean_s(device, lambda: engine.step(slots), steps)
    for slot in slots:
        engine.close(slot)
    floor_s = rates.floor_s(_step_bytes(subject, batch, PROMPT + steps // 2), 2 * subject.step_parameters * batch)
    yield Figure(f"frame step, {batch} at once", 1000 * step_s, "ms", 1000 * floor_s)
    yield Figure(f"frames, {batch} at once", batch / step_s, "frames/s")
    codec_s, audio_s = _codec_s(subject.decoder, device, batch), batch * PIECE / subject.frames_per_s
    codec_floor_s = codec_rates.floor_s(0, subject.codec_flops * batch * PIECE)
    yield Figure(f"codec, {batch} at once", 1000 * codec_s / audio_s, "ms/s of audio", 1000 * codec_floor_s / audio_s)
    yield Figure(f"both on one device, {batch} at once", audio_s / (PIECE * step_s + codec_s), "× real time")


def _codec_s(decoder: Decoder, device: torch.device, batch: int) -> float:
    """Seconds for a piece of each stream, which all have the transformer's window behind them."""
    streams = [decoder.streams.open() for _ in range(batch)]
    codes = [_codes(decoder, PIECE)] * batch
    took_s = best_s(device, lambda: decoder(streams, codes), tries=3)
    for stream in streams:
        decoder.streams.close(stream)
    return took_s


def _engine(subject: Subject, slots: int) -> Engine:
    engine = Engine(subject.talker, EngineOptions(slots))
    engine.capture()
    return engine


def _nothing(subject: Subject) -> Codes:
    return np.empty((0, subject.talker.codes), np.uint16)


def _codes(decoder: Decoder, frames: int) -> Tensor:
    return torch.stack([torch.randint(entries, (frames,)) for entries in decoder.codebooks], dim=1)


def _step_bytes(subject: Subject, batch: int, context: int) -> float:
    """Weights, once for all rows, and each row's keys and values."""
    kv = subject.talker.kv
    of_position = 2 * kv.layers * kv.kv_heads * kv.size
    return kv.dtype.itemsize * (subject.step_parameters + batch * context * of_position)
