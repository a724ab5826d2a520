"""How quick the stages are, with random weights of a given size."""

from collections.abc import Iterator, Sequence

import torch

from speechmill.models.common.engine.model import Request
from speechmill.models.common.measure import Figure
from speechmill.models.common.random_weights import RandomWeights
from speechmill.models.common.speed import FRAMES, REFERENCE, TEXT, Subject, measure_speed
from speechmill.models.fish_speech.codec.config import CodecConfig
from speechmill.models.fish_speech.codec.decoder import Decoder
from speechmill.models.fish_speech.random import SIZES as SIZES
from speechmill.models.fish_speech.random import random_prompt, random_talker, step_parameters

SIZE = "400m"
"""Measured where none is named."""
FRAME_RATE = 44_100 / 2_048
CODEC_FLOPS = 6.77e9
"""Of one frame of the released codec (fish_speech.md §7.1)."""
FIRST_FRAMES = 4


def measure(size: str, device: torch.device, batches: Sequence[int]) -> Iterator[Figure]:
    """`size`: of `SIZES`; the codec always has the released shape."""
    return measure_speed(lambda dtype: subject(size, device, dtype), device, batches)


def subject(size: str, device: torch.device, dtype: torch.dtype) -> Subject:
    """With random weights; `dtype` is the talker's."""
    talker = random_talker(size, device, dtype)

    def request(seed: int) -> Request:
        return Request(random_prompt(talker, TEXT, REFERENCE, seed), seed, (0.8, 0.8, 30.0, 1.0), FRAMES)

    return Subject(
        talker=talker,
        decoder=Decoder(RandomWeights(0, device, torch.float32), CodecConfig()),
        request=request,
        step_parameters=step_parameters(talker.config),
        codec_flops=CODEC_FLOPS,
        frames_per_s=FRAME_RATE,
        first_frames=FIRST_FRAMES,
    )
