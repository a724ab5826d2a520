"""How quick the stages are, with random weights of a given size."""

from collections.abc import Iterator, Sequence

import torch

from speechmill.models.common.engine.model import Request
from speechmill.models.common.measure import Figure
from speechmill.models.common.random_weights import RandomWeights
from speechmill.models.common.speed import FRAMES, REFERENCE, TEXT, Subject, measure_speed
from speechmill.models.common.transformer import LayerShape
from speechmill.models.qwen3_tts.codec.config import DecoderConfig, TransformerConfig
from speechmill.models.qwen3_tts.codec.decoder import Decoder
from speechmill.models.qwen3_tts.random import SIZES as SIZES
from speechmill.models.qwen3_tts.random import random_prompt, random_speaker, random_talker, step_parameters

SIZE = "0.6b"
"""Measured where none is named."""
FRAME_RATE = 12.5
CODEC_FLOPS = 4.96e9
"""Of one frame of the released codec (qwen3_tts.md §6.4)."""
FIRST_FRAMES = 1
SETTINGS = (0.9, 1.0, 50.0, 1.05, 0.9, 1.0, 50.0)
"""As released."""
CODEC = DecoderConfig(
    codebooks=16,
    entries=2048,
    width=512,
    latent=1024,
    transformer=TransformerConfig(
        LayerShape(layers=8, width=512, heads=16, kv_heads=16, size=64, hidden=1024, eps=1e-5), rope_base=1e4, window=72
    ),
    upsamplings=(2, 2),
    channels=1536,
    rates=(8, 5, 4, 3),
)
"""As released."""


def measure(size: str, device: torch.device, batches: Sequence[int]) -> Iterator[Figure]:
    """`size`: of `SIZES`; the codec always has the released shape."""
    return measure_speed(lambda dtype: subject(size, device, dtype), device, batches)


def subject(size: str, device: torch.device, dtype: torch.dtype) -> Subject:
    """With random weights; `dtype` is the talker's."""
    talker = random_talker(size, device, dtype)

    def request(seed: int) -> Request:
        prompt, speaker = random_prompt(talker, TEXT - 1, REFERENCE, seed), random_speaker(talker, seed)
        return Request(prompt, seed, SETTINGS, FRAMES, speaker)

    return Subject(
        talker=talker,
        decoder=Decoder(RandomWeights(0, device, torch.float32), CODEC),
        request=request,
        step_parameters=step_parameters(talker.config),
        codec_flops=CODEC_FLOPS,
        frames_per_s=FRAME_RATE,
        first_frames=FIRST_FRAMES,
    )
