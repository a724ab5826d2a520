"""How quick the stages are, with random weights of a given size, beside what the device allows."""

from collections.abc import Iterator, Sequence

import torch

from speechmill.models.common.engine.measure import FRAMES, Measured
from speechmill.models.common.engine.measure import measure as measure_talker
from speechmill.models.common.engine.model import Request
from speechmill.models.common.measure import Figure
from speechmill.models.common.random_weights import RandomWeights
from speechmill.models.qwen3_tts.codec.config import DecoderConfig, TransformerConfig
from speechmill.models.qwen3_tts.codec.decoder import Decoder
from speechmill.models.qwen3_tts.random import random_prompt, random_speaker, random_talker, step_parameters

FRAME_RATE = 12.5
CODEC_FLOPS = 5e9
"""Of one frame of the released codec (qwen3_tts.md §6.4)."""
TEXT, REFERENCE = 60, 125
"""Columns of a prompt: ten seconds of a reference."""
SETTINGS = (0.9, 1.0, 50.0, 1.05, 0.9, 1.0, 50.0)
CODEC = DecoderConfig(
    codebooks=16,
    entries=2048,
    width=512,
    latent=1024,
    transformer=TransformerConfig(512, 8, 16, 16, 64, 1024, eps=1e-5, rope_base=1e4, window=72),
    upsamplings=(2, 2),
    channels=1536,
    rates=(8, 5, 4, 3),
)
"""As released."""


def measure(size: str, device: torch.device, batches: Sequence[int]) -> Iterator[Figure]:
    """`size`: of `random.SIZES`; the codec always has the released shape. Raises KeyError for another size."""

    def make(dtype: torch.dtype) -> Measured:
        talker = random_talker(size, device, dtype)

        def request(seed: int) -> Request:
            prompt, speaker = random_prompt(talker, TEXT, REFERENCE, seed), random_speaker(talker, seed)
            return Request(prompt, key=seed, settings=SETTINGS, max_frames=FRAMES, vectors=speaker)

        decoder = Decoder(RandomWeights(0, device, torch.float32), CODEC)
        return Measured(talker, decoder, request, step_parameters(talker.config), FRAME_RATE, CODEC_FLOPS)

    return measure_talker(make, device, batches)
