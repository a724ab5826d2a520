"""Talkers of a given size with random weights: what speed does not depend on is left to chance."""

from dataclasses import replace
from functools import partial

import numpy as np
import torch

from speechmill.models.common.engine.model import Columns
from speechmill.models.common.random_weights import RandomWeights
from speechmill.models.common.transformer import LayerShape
from speechmill.models.fish_speech.columns import frame_columns
from speechmill.models.fish_speech.config import TalkerConfig
from speechmill.models.fish_speech.talker import Talker

_CODEBOOKS = 10
_layers = partial(LayerShape, eps=1e-6, qk_norm=True, qk_cast_last=True)


def _config(slow: LayerShape, fast_layers: int, codebook: int, positions: int) -> TalkerConfig:
    return TalkerConfig(
        slow=slow,
        fast=replace(slow, layers=fast_layers, qk_norm=False),
        vocabulary=codebook + 2048,
        codebook=codebook,
        codebooks=_CODEBOOKS,
        positions=positions,
        rope_base=1e6,
        tied=True,
        scaled=True,
        normed=True,
        semantic=(2048, 2047 + codebook),
        residual_limit=codebook // 4,
    )


SIZES = {
    "tiny": _config(_layers(2, 64, 4, 2, 16, 128), 1, 64, 1024),
    "400m": _config(_layers(24, 1024, 16, 4, 64, 3840), 4, 4096, 4096),
    "full": replace(_config(_layers(36, 2560, 32, 8, 128, 9728), 4, 4096, 32768), vocabulary=155_776),
}
"""The last one has the released shapes."""


def random_talker(size: str, device: torch.device, dtype: torch.dtype, seed: int = 0) -> Talker:
    """Raises KeyError for a size that is none of `SIZES`. The end stands before the semantic tokens, as in truth."""
    config = SIZES[size]
    weights = RandomWeights(seed, device, dtype, without=["wq.weight"])  # queries, keys, values are one, as released
    return Talker(config, config.semantic[0], config.semantic[0] - 1, dtype, weights, device)


def step_parameters(config: TalkerConfig) -> int:
    """Parameters that one frame step has to read, however many rows it has: what its speed is measured by."""
    slow, fast = config.slow, config.fast
    head = (config.codebook + 1) * slow.width
    return (
        slow.parameters
        + head
        + (config.codebooks - 1) * (fast.parameters + (config.residual_limit or config.codebook) * fast.width)
    )


def random_prompt(talker: Talker, text: int, frames: int, seed: int = 0) -> Columns:
    """A reference of `frames`, and `text` tokens."""
    generator, config = np.random.default_rng(seed), talker.config
    codes = generator.integers(config.codebook, size=(frames, config.codebooks)).astype(np.uint16)
    words = np.zeros((1 + config.codebooks, text), np.int64)
    words[0] = generator.integers(config.semantic[0] - 1, size=text)
    return np.concatenate([frame_columns(codes, config.semantic[0]), words], axis=1)
