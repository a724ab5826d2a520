"""How quick a talker and its codec are, beside what the device allows; a family brings them with random weights."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np
import torch
from torch import Tensor

from speechmill.models.common.codec.decoder import Decoder
from speechmill.models.common.device import exact_convolutions
from speechmill.models.common.engine.engine import Engine, EngineOptions
from speechmill.models.common.engine.model import Codes, FrameModel, Request
from speechmill.models.common.engine.stage import LIVE_FRAMES
from speechmill.models.common.measure import Figure, Rates, best_s, mean_s, measure_rates

STEPS = {"cpu": 8, "cuda": 100}
FRAMES = 256
"""That a request allows, more than are made of it."""
PIECE = 25
"""Frames that the codec takes at once in the middle of a stream."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What is measured."""

    talker: FrameModel
    decoder: Decoder
    request: Callable[[int], Request]
    """By seed. All prompts are of one length, and no two begin alike."""
    step_parameters: int
    """That one frame step has to read, however many rows it has."""
    frame_rate: float
    codec_flops: float
    """Of one frame."""

    @property
    def prompt(self) -> int:
        """Columns of each."""
        return int(self.request(0).prompt.shape[1])

    @property
    def nothing(self) -> Codes:
        return np.empty((0, self.talker.codes), np.uint16)

    def codes(self, frames: int) -> Tensor:
        return torch.stack([torch.randint(size, (frames,)) for size in self.decoder.codebooks], dim=1)

    def engine(self, slots: int) -> Engine:
        engine = Engine(self.talker, EngineOptions(slots))
        engine.capture()
        return engine

    def step_bytes(self, batch: int, context: int) -> float:
        """Weights, once for all rows, and each row's keys and values."""
        kv = self.talker.kv
        of_position = 2 * kv.layers * kv.kv_heads * kv.size
        return kv.dtype.itemsize * (self.step_parameters + batch * context * of_position)


def measure(make: Callable[[torch.dtype], Measured], device: torch.device, batches: Sequence[int]) -> Iterator[Figure]:
    """`make`: with the talker in this dtype."""
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    rates = measure_rates(device, dtype)
    codec_rates = rates if dtype is torch.float32 else measure_rates(device, torch.float32)
    yield Figure("copy bandwidth", rates.bytes_per_s / 1e9, "GB/s")
    yield Figure(f"matrix product, {str(dtype).removeprefix('torch.')}", rates.flops_per_s / 1e12, "TFLOP/s")
    exact_convolutions(device)
    with torch.inference_mode():
        measured = make(dtype)
        yield from _first_audio(measured, device)
        for batch in batches:
            yield from _batch(measured, rates, codec_rates, batch, device)


def _first_audio(measured: Measured, device: torch.device) -> Iterator[Figure]:
    """The prompt alone, and everything until the first samples are there, of a stream that nobody stands beside."""
    engine, decoder, seeds = measured.engine(1), measured.decoder, count()
    codes = measured.codes(LIVE_FRAMES)

    def begin() -> None:
        engine.open(0, measured.request(next(seeds)), measured.nothing)
        while not engine.step([0]):
            pass

    def sound() -> None:
        begin()
        for _ in range(LIVE_FRAMES - 1):
            engine.step([0])
        stream = decoder.streams.open()
        decoder([stream], [codes])
        decoder.streams.close(stream)
        engine.close(0)

    def prompt() -> None:
        begin()
        engine.close(0)

    yield Figure(f"prefill of {measured.prompt} and one frame", 1000 * best_s(device, prompt), "ms")
    yield Figure("first audio", 1000 * best_s(device, sound), "ms")


def _batch(measured: Measured, rates: Rates, codec_rates: Rates, batch: int, device: torch.device) -> Iterator[Figure]:
    engine, slots = measured.engine(batch), list(range(batch))
    for slot in slots:
        engine.open(slot, measured.request(slot), measured.nothing)
    while len(engine.step(slots)) < batch:
        pass
    engine.step(slots)
    steps = STEPS[device.type]
    step_s = mean_s(device, lambda: engine.step(slots), steps)
    for slot in slots:
        engine.close(slot)
    context = measured.prompt + steps // 2
    floor_s = rates.floor_s(measured.step_bytes(batch, context), 2 * measured.step_parameters * batch)
    yield Figure(f"frame step, {batch} at once", 1000 * step_s, "ms", 1000 * floor_s)
    yield Figure(f"frames, {batch} at once", batch / step_s, "frames/s")
    codec_s = _codec_s(measured, batch, device)
    audio_s = batch * PIECE / measured.frame_rate
    codec_floor_s = codec_rates.floor_s(0, measured.codec_flops * batch * PIECE)
    yield Figure(f"codec, {batch} at once", 1000 * codec_s / audio_s, "ms/s of audio", 1000 * codec_floor_s / audio_s)
    yield Figure(f"both on one device, {batch} at once", audio_s / (PIECE * step_s + codec_s), "× real time")


def _codec_s(measured: Measured, batch: int, device: torch.device) -> float:
    """Seconds for a piece of each stream, which all have the transformer's window behind them."""
    decoder, codes = measured.decoder, [measured.codes(PIECE)] * batch
    streams = [decoder.streams.open() for _ in range(batch)]
    took_s = best_s(device, lambda: decoder(streams, codes), tries=3)
    for stream in streams:
        decoder.streams.close(stream)
    return took_s
