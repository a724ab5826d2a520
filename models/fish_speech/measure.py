"""How quick the stages are, with random weights of a given size, beside what the device allows."""

from collections.abc import Iterator, Sequence

import torch

from speechmill.models.common.engine.measure import FRAMES, Measured
from speechmill.models.common.engine.measure import measure as measure_talker
from speechmill.models.common.engine.model import Request
from speechmill.models.common.measure import Figure
from speechmill.models.common.random_weights import RandomWeights
from speechmill.models.fish_speech.codec.config import CodecConfig
from speechmill.models.fish_speech.codec.decoder import Decoder
from speechmill.models.fish_speech.random import random_prompt, random_talker, step_parameters

FRAME_RATE = 44_100 / 2_048
CODEC_FLOPS = 6.77e9
"""Of one frame of the released codec (fish_speech.md §7.1)."""
TEXT, REFERENCE = 300, 200
"""Columns of a prompt."""
SETTINGS = (0.8, 0.8, 30.0, 1.0)


def measure(size: str, device: torch.device, batches: Sequence[int]) -> Iterator[Figure]:
    """`size`: of `random.SIZES`; the codec always has the released shape. Raises KeyError for another size."""

    def make(dtype: torch.dtype) -> Measured:
        talker = random_talker(size, device, dtype)

        def request(seed: int) -> Request:
            prompt = random_prompt(talker, TEXT, REFERENCE, seed).numpy()
            return Request(prompt, key=seed, settings=SETTINGS, max_frames=FRAMES)

        decoder = Decoder(RandomWeights(0, device, torch.float32), CodecConfig())
        return Measured(talker, decoder, request, step_parameters(talker.config), FRAME_RATE, CODEC_FLOPS)

    return measure_talker(make, device, batches)
