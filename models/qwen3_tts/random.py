"""Talkers of a given size with random weights: what speed does not depend on is left to chance."""

from functools import partial

import numpy as np
import torch

from speechmill.models.common.engine.model import Columns, Vectors
from speechmill.models.common.random_weights import RandomWeights
from speechmill.models.common.transformer import LayerShape
from speechmill.models.qwen3_tts.columns import FIRST, VECTOR, frame_columns, text_columns
from speechmill.models.qwen3_tts.config import BASE, CONTROL_IDS, CodecIds, TalkerConfig, TextIds
from speechmill.models.qwen3_tts.talker import Talker

_layers = partial(LayerShape, eps=1e-6, qk_norm=True)


def _config(
    talker: LayerShape, predictor: LayerShape, groups: int, codes: int, text: tuple[int, int], positions: int
) -> TalkerConfig:
    """`text`: size and width of the text vocabulary."""
    return TalkerConfig(
        kind=BASE,
        size="",
        talker=talker,
        predictor=predictor,
        rope_base=1e6,
        predictor_rope_base=1e6,
        positions=positions,
        groups=groups,
        vocabulary=codes + CONTROL_IDS,
        residual_codes=codes,
        text_vocabulary=text[0],
        text_width=text[1],
        text=TextIds(*range(text[0] - 5, text[0])),
        codec=CodecIds(*range(codes + 100, codes + 107)),
        languages={},
        speakers={},
        dialects={},
    )


_PREDICTOR = _layers(5, 1024, 16, 8, 128, 3072)
_TEXT = (151_936, 2048)
SIZES = {
    "tiny": _config(_layers(2, 64, 4, 2, 16, 128), _layers(1, 32, 4, 2, 8, 64), 4, 64, (512, 48), 1024),
    "0.6b": _config(_layers(28, 1024, 16, 8, 128, 3072), _PREDICTOR, 16, 2048, _TEXT, 32_768),
    "1.7b": _config(_layers(28, 2048, 16, 8, 128, 6144), _PREDICTOR, 16, 2048, _TEXT, 32_768),
}
"""The last two have the released shapes."""


def random_talker(size: str, device: torch.device, dtype: torch.dtype, seed: int = 0) -> Talker:
    """Raises KeyError for a size that is none of `SIZES`."""
    return Talker(SIZES[size], dtype, RandomWeights(seed, device, dtype), device)


def step_parameters(config: TalkerConfig) -> int:
    """Parameters that one frame step has to read, however many rows it has: what its speed is measured by."""
    talker, predictor = config.talker, config.predictor
    head = (config.first_codes + 1) * talker.width
    narrow = talker.width * predictor.width if talker.width != predictor.width else 0
    residual = predictor.parameters + config.residual_codes * predictor.width + narrow
    return talker.parameters + head + (config.groups - 1) * residual


def random_prompt(talker: Talker, text: int, frames: int, seed: int = 0) -> Columns:
    """A vector, a reference of so many frames, and text tokens, all of which stand before the first frame."""
    generator, config = np.random.default_rng(seed), talker.config
    tokens = generator.integers(config.text.start, size=text + frames)
    codes = generator.integers(config.residual_codes, size=(frames, config.groups)).astype(np.uint16)
    speaker = text_columns([config.text.pad], config.groups)
    speaker[VECTOR] = 0
    words = text_columns(tokens[frames:].tolist(), config.groups, config.codec.pad)
    words[FIRST, -1] = config.codec.bos
    return np.concatenate([speaker, frame_columns(codes, tokens[:frames]), words], axis=1)


def random_speaker(talker: Talker, seed: int = 0) -> Vectors:
    """[1, talker width]"""
    return np.random.default_rng(seed).standard_normal((1, talker.config.talker.width), np.float32)
