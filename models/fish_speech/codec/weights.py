"""Where the codec's parameters lie, and the layers that encoder and decoder are built of."""

from pathlib import Path

import torch
from torch import Tensor

from speechmill.models.common.carry import Carry
from speechmill.models.common.causal_blocks import ConvNeXt, ResidualUnit, Snake
from speechmill.models.common.checkpoint import Reader, StateDict
from speechmill.models.common.convolution import CausalConvolution, DepthwiseConvolution, take_kernel
from speechmill.models.common.rope import Rope, frequencies
from speechmill.models.common.window_transformer import WindowLayerWeights, WindowShape, WindowTransformer
from speechmill.models.fish_speech.codec.config import TransformerConfig

FILE = "codec.pth"
POSITIONS = 1 << 16
"""Rows that a stream may have where a transformer stands: 50 minutes of codes, 12 minutes of a recording."""
_DILATIONS = (1, 3, 9)


def open_source(folder: Path) -> StateDict:
    """The codec's file. Raises CheckpointError for one that cannot be read."""
    return StateDict(folder / FILE)


def rename(key: str) -> str:
    """Some trainers keep the codec as a part of theirs."""
    return key.removeprefix("generator.")


class Builder:
    """Makes the layers of one network, in its order, under the names of the checkpoint."""

    def __init__(self, weights: Reader, carry: Carry) -> None:
        self.weights, self.carry = weights, carry

    def snake(self, name: str, channels: int) -> Snake:
        return Snake(self.weights.take(f"{name}.alpha", (1, channels, 1)))

    def convolution(self, name: str, shape: tuple[int, int, int], dilation: int = 1) -> CausalConvolution:
        """`shape`: [out, in, width]."""
        return CausalConvolution(*self._kernel(name, shape, shape[0]), self.carry, dilation)

    def strided(self, name: str, shape: tuple[int, int, int], stride: int) -> CausalConvolution:
        """`shape`: [out, in, width]."""
        return CausalConvolution.strided(*self._kernel(name, shape, shape[0]), self.carry, stride)

    def transposed(self, name: str, shape: tuple[int, int, int], stride: int) -> CausalConvolution:
        """`shape`: [in, out, width]."""
        return CausalConvolution.transposed(*self._kernel(name, shape, shape[1]), self.carry, stride)

    def residual_units(self, name: str, first: int, channels: int) -> list[ResidualUnit]:
        """Three of them, numbered from `first` on."""
        return [
            ResidualUnit(
                self.snake(f"{name}.{first + index}.block.0", channels),
                self.convolution(f"{name}.{first + index}.block.1", (channels, channels, 7), dilation),
                self.snake(f"{name}.{first + index}.block.2", channels),
                self.convolution(f"{name}.{first + index}.block.3", (channels, channels, 1)),
            )
            for index, dilation in enumerate(_DILATIONS)
        ]

    def conv_next(self, name: str, channels: int) -> ConvNeXt:
        depthwise = DepthwiseConvolution(*self._kernel(f"{name}.dwconv", (channels, 1, 7), channels), self.carry)
        return ConvNeXt(
            depthwise,
            norm=self._affine(f"{name}.norm", (channels,)),
            up=self._affine(f"{name}.pwconv1", (4 * channels, channels)),
            down=self._affine(f"{name}.pwconv2", (channels, 4 * channels)),
            gamma=self.weights.take(f"{name}.gamma", (channels,)),
        )

    def transformer(self, name: str, config: TransformerConfig, window: int) -> WindowTransformer:
        """Positions are turned by sines and cosines that went through bfloat16, as in training."""
        weights = self.weights.at(name)
        layers = [_layer(weights.at(f"layers.{index}"), config) for index in range(config.n_layer)]
        norm = weights.take("norm.weight", (config.dim,))
        shape = WindowShape(config.n_head, config.kv_heads, config.head_dim, window, config.norm_eps)
        turning = frequencies(config.head_dim, config.rope_base)
        rope = Rope(POSITIONS, turning, "interleaved", torch.bfloat16, norm.device)
        return WindowTransformer(layers, norm, shape, rope, self.carry)

    def _kernel(self, name: str, shape: tuple[int, int, int], outputs: int) -> tuple[Tensor, Tensor]:
        return take_kernel(self.weights, f"{name}.conv", shape), self.weights.take(f"{name}.conv.bias", (outputs,))

    def _affine(self, name: str, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        return self.weights.take(f"{name}.weight", shape), self.weights.take(f"{name}.bias", shape[:1])


def _layer(weights: Reader, config: TransformerConfig) -> WindowLayerWeights:
    dim, hidden, mixed = config.dim, config.intermediate_size, config.n_head * config.head_dim
    rows = mixed + 2 * config.kv_heads * config.head_dim
    return WindowLayerWeights(
        qkv=weights.take("attention.wqkv.weight", (rows, dim)),
        out=weights.take("attention.wo.weight", (dim, mixed)),
        attention_norm=weights.take("attention_norm.weight", (dim,)),
        attention_scale=weights.take("attention_layer_scale.gamma", (dim,)),
        gate=weights.take("feed_forward.w1.weight", (hidden, dim)),
        up=weights.take("feed_forward.w3.weight", (hidden, dim)),
        down=weights.take("feed_forward.w2.weight", (dim, hidden)),
        feed_norm=weights.take("ffn_norm.weight", (dim,)),
        feed_scale=weights.take("ffn_layer_scale.gamma", (dim,)),
    )
