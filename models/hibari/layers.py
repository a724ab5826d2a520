"""The layers that both stages are made of. Activations are rows, [positions, channels] float32."""

from collections.abc import Mapping
from typing import Self

import torch
from torch import Tensor
from torch.nn import functional as fn

from speechmill.models.common.streaming import depthwise, pad_rows

_EPS = 1e-5


class Linear:
    """Dense layer. Its weight is kept as [in, out]: for a few rows that product is up to twice as fast."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        """`weight`: [out, in], or a convolution's [out, in, width] that reads rows unfolded by `unfold_rows`."""
        self.weight = (weight.transpose(1, 2).flatten(1) if weight.ndim == 3 else weight).T.contiguous()
        self.bias = bias

    @classmethod
    def named(cls, weights: Mapping[str, Tensor], name: str) -> Self:
        return cls(weights[f"{name}.weight"], weights[f"{name}.bias"])

    def __call__(self, rows: Tensor) -> Tensor:
        return torch.addmm(self.bias, rows, self.weight)

    def add_to(self, total: Tensor, rows: Tensor) -> Tensor:
        """Adds the layer's output for `rows` to `total`, in place."""
        return total.add_(self.bias).addmm_(rows, self.weight)


class Norm:
    """Layer norm over the channels."""

    def __init__(self, weights: Mapping[str, Tensor], name: str) -> None:
        self.weight, self.bias = weights[f"{name}.weight"], weights[f"{name}.bias"]

    def __call__(self, rows: Tensor) -> Tensor:
        return fn.layer_norm(rows, self.bias.shape, self.weight, self.bias, _EPS)


class Block:
    """x + gamma·(W2·GELU(W1·norm(depthwise conv(x)))): ConvNeXt without its first stage."""

    def __init__(self, weights: Mapping[str, Tensor], name: str, dilation: int = 1) -> None:
        self.taps = weights[f"{name}.dw.weight"][:, 0].T.contiguous()  # [k, channels]
        self.tap_bias = weights[f"{name}.dw.bias"]
        self.dilation = dilation
        self.reach = dilation * (len(self.taps) // 2)
        self.norm = Norm(weights, f"{name}.norm")
        self.up = Linear.named(weights, f"{name}.pw1")
        # gamma scales the rows of W2, so that it costs nothing per frame.
        gamma = weights[f"{name}.gamma"]
        self.down = Linear(gamma[:, None] * weights[f"{name}.pw2.weight"], gamma * weights[f"{name}.pw2.bias"])

    def __call__(self, rows: Tensor) -> Tensor:
        """A whole stream at once: [n, channels], overwritten with the result."""
        return self.mix(self.convolve(pad_rows(rows, self.reach)), rows)

    def convolve(self, wide: Tensor) -> Tensor:
        """The part that sees neighbours: [n + 2·reach, channels] → [n, channels]."""
        return depthwise(wide, self.taps, self.tap_bias, self.dilation)

    def mix(self, convolved: Tensor, rows: Tensor) -> Tensor:
        """The part that works on each row alone; `rows` is the residual and is overwritten with the result."""
        return self.down.add_to(rows, fn.gelu(self.up(self.norm(convolved))))


class TextEncoder:
    """Phoneme ids → rows: two convolution blocks, then one pre-norm transformer layer applied `loops` times."""

    HEADS = 2

    def __init__(self, weights: Mapping[str, Tensor], name: str, loops: int) -> None:
        self.embedding = weights[f"{name}.emb.weight"]
        self.blocks = [Block(weights, f"{name}.convs.{index}") for index in range(2)]
        layer = f"{name}.attn"
        self.project = Linear(weights[f"{layer}.self_attn.in_proj_weight"], weights[f"{layer}.self_attn.in_proj_bias"])
        self.merge = Linear.named(weights, f"{layer}.self_attn.out_proj")
        self.norm1, self.norm2 = Norm(weights, f"{layer}.norm1"), Norm(weights, f"{layer}.norm2")
        self.up, self.down = Linear.named(weights, f"{layer}.linear1"), Linear.named(weights, f"{layer}.linear2")
        self.norm = Norm(weights, f"{name}.norm")
        self.loops = loops

    def __call__(self, ids: Tensor) -> Tensor:
        """[length] integers → [length, channels]."""
        rows = fn.embedding(ids, self.embedding)
        for block in self.blocks:
            rows = block(rows)
        for _ in range(self.loops):
            self.merge.add_to(rows, self._attend(self.norm1(rows)))
            self.down.add_to(rows, fn.gelu(self.up(self.norm2(rows))))
        return self.norm(rows)

    def _attend(self, rows: Tensor) -> Tensor:
        """Full self-attention without positions, scale 1/√(channels / heads)."""
        length, channels = rows.shape
        split = self.project(rows).view(1, length, 3, self.HEADS, -1)
        query, key, value = split.permute(2, 0, 3, 1, 4)  # each [1, heads, length, channels / heads]
        mixed = fn.scaled_dot_product_attention(query, key, value)
        return mixed.transpose(1, 2).reshape(length, channels)
