"""Where the codec's parameters lie, and the layers that encoder and decoder are built of."""

from pathlib import Path

import torch

from speechmill.models.common.checkpoint import Reader, StateDict
from speechmill.models.common.codec import builder
from speechmill.models.common.codec.decoder import POSITIONS
from speechmill.models.common.rope import Rope, frequencies
from speechmill.models.common.window_transformer import WindowLayerWeights, WindowShape, WindowTransformer
from speechmill.models.fish_speech.codec.config import TransformerConfig

FILE = "codec.pth"


def open_source(folder: Path) -> StateDict:
    """The codec's file. Raises CheckpointError for one that cannot be read."""
    return StateDict(folder / FILE)


def rename(key: str) -> str:
    """Some trainers keep the codec as a part of theirs."""
    return key.removeprefix("generator.")


class Builder(builder.Builder):
    """Makes the layers of one network, in its order, under the names of the checkpoint."""

    def transformer(self, name: str, config: TransformerConfig, window: int) -> WindowTransformer:
        """Positions are turned by sines and cosines that went through bfloat16, as in training."""
        weights = self.weights.at(name)
        layers = [_layer(weights.at(f"layers.{index}"), config) for index in range(config.n_layer)]
        norm = weights.take("norm.weight", (config.dim,))
        shape = WindowShape(config.n_head, config.kv_heads, config.head_dim, window, config.norm_eps)
        turning = frequencies(config.head_dim, config.rope_base)
        rope = Rope(POSITIONS, turning, "interleaved", torch.bfloat16, norm.device)
        return WindowTransformer(layers, (norm, None), shape, rope, self.carry)


def _layer(weights: Reader, config: TransformerConfig) -> WindowLayerWeights:
    dim, hidden, mixed = config.dim, config.intermediate_size, config.n_head * config.head_dim
    rows = mixed + 2 * config.kv_heads * config.head_dim
    return WindowLayerWeights(
        qkv=weights.take("attention.wqkv.weight", (rows, dim)),
        out=weights.take("attention.wo.weight", (dim, mixed)),
        attention_norm=(weights.take("attention_norm.weight", (dim,)), None),
        attention_scale=weights.take("attention_layer_scale.gamma", (dim,)),
        gate=weights.take("feed_forward.w1.weight", (hidden, dim)),
        up=weights.take("feed_forward.w3.weight", (hidden, dim)),
        down=weights.take("feed_forward.w2.weight", (dim, hidden)),
        feed_norm=(weights.take("ffn_norm.weight", (dim,)), None),
        feed_scale=weights.take("ffn_layer_scale.gamma", (dim,)),
    )
