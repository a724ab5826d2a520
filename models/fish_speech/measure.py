"""How quick the stages are, with random weights of a given size, beside what the device allows."""

from collections.abc import Iterator, Sequence
from itertools import count

import numpy as np
import torch
from torch import Tensor

from speechmill.models.common.device import exact_convolutions
from speechmill.models.common.engine.engine import Engine, EngineOptions
from speechmill.models.common.engine.model import Codes, Request
from speechmill.models.common.engine.stage import LIVE_FRAMES
from speechmill.models.common.measure import Figure, Rates, best_s, mean_s, measure_rates
from speechmill.models.common.random_weights import RandomWeights
from speechmill.models.fish_speech.codec.config import CodecConfig
from speechmill.models.fish_speech.codec.decoder import Decoder
from speechmill.models.fish_speech.random import random_prompt, random_talker, step_parameters
from speechmill.models.fish_speech.talker import Talker

FRAME_RATE = 44_100 / 2_048
CODEC_FLOPS = 6.77e9
"""Of one frame of the released codec (fish_speech.md §7.1)."""
PROMPT = 500
"""Columns, of which 200 are a reference."""
STEPS = {"cpu": 8, "cuda": 100}
PIECE = 25
"""Frames that the codec takes at once in the middle of a stream."""
SETTINGS = (0.8, 0.8, 30.0, 1.0)


def measure(size: str, device: torch.device, batches: Sequence[int]) -> Iterator[Figure]:
    """`size`: of `random.SIZES`; the codec always has the released shape. Raises KeyError for another size."""
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    rates = measure_rates(device, dtype)
    codec_rates = rates if dtype is torch.float32 else measure_rates(device, torch.float32)
    yield Figure("copy bandwidth", rates.bytes_per_s / 1e9, "GB/s")
    yield Figure(f"matrix product, {str(dtype).removeprefix('torch.')}", rates.flops_per_s / 1e12, "TFLOP/s")
    exact_convolutions(device)
    with torch.inference_mode():
        talker = random_talker(size, device, dtype)
        decoder = Decoder(RandomWeights(0, device, torch.float32), CodecConfig())
        yield from _first_audio(talker, decoder, device)
        for batch in batches:
            yield from _batch(talker, decoder, rates, codec_rates, batch)


def _first_audio(talker: Talker, decoder: Decoder, device: torch.device) -> Iterator[Figure]:
    """The prompt alone, and everything until the first samples are there, of a stream that nobody stands beside."""
    engine, seeds, codes = _engine(talker, 1), count(), _codes(decoder, LIVE_FRAMES)

    def begin() -> None:
        engine.open(0, _request(talker, next(seeds)), _nothing(talker))
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

    yield Figure(f"prefill of {PROMPT} and one frame", 1000 * best_s(device, prompt), "ms")
    yield Figure("first audio", 1000 * best_s(device, sound), "ms")


def _batch(talker: Talker, decoder: Decoder, rates: Rates, codec_rates: Rates, batch: int) -> Iterator[Figure]:
    device = talker.kv.device
    engine, slots = _engine(talker, batch), list(range(batch))
    for slot in slots:
        engine.open(slot, _request(talker, seed=slot), _nothing(talker))
    while len(engine.step(slots)) < batch:
        pass
    engine.step(slots)
    steps = STEPS[device.type]
    step_s = mean_s(device, lambda: engine.step(slots), steps)
    for slot in slots:
        engine.close(slot)
    floor_s = rates.floor_s(_step_bytes(talker, batch, PROMPT + steps // 2), 2 * step_parameters(talker.config) * batch)
    yield Figure(f"frame step, {batch} at once", 1000 * step_s, "ms", 1000 * floor_s)
    yield Figure(f"frames, {batch} at once", batch / step_s, "frames/s")
    codec_s = _codec_s(decoder, device, batch)
    audio_s = batch * PIECE / FRAME_RATE
    codec_floor_s = codec_rates.floor_s(0, CODEC_FLOPS * batch * PIECE)
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


def _engine(talker: Talker, slots: int) -> Engine:
    engine = Engine(talker, EngineOptions(slots))
    engine.capture()
    return engine


def _request(talker: Talker, seed: int) -> Request:
    """No two share a prompt."""
    prompt = random_prompt(talker, PROMPT - 200, 200, seed)
    return Request(prompt.numpy(), key=seed, settings=SETTINGS, max_frames=256)


def _nothing(talker: Talker) -> Codes:
    return np.empty((0, talker.codes), np.uint16)


def _codes(decoder: Decoder, frames: int) -> Tensor:
    sizes = CodecConfig().quantizer.codebooks
    return torch.stack([torch.randint(size, (frames,)) for size in sizes], dim=1)


def _step_bytes(talker: Talker, batch: int, context: int) -> float:
    """Weights, once for all rows, and each row's keys and values."""
    kv = talker.kv
    of_position = 2 * kv.layers * kv.kv_heads * kv.size
    return kv.dtype.itemsize * (step_parameters(talker.config) + batch * context * of_position)
