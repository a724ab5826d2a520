"""Decoder layers of the Llama and Qwen kind: pre-norm, rotary positions, grouped heads, gated feed-forward.

Activations are rows [n, width], of any mixture of sequences: what connects rows is the `Attend` that a call brings.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as fn

from speechmill.models.common.attention import Attend
from speechmill.models.common.checkpoint import Reader
from speechmill.models.common.linear import Linear
from speechmill.models.common.norm import rms_norm
from speechmill.models.common.rope import Rope


@dataclass(frozen=True, slots=True)
class LayerShape:
    """What all layers of one transformer have in common."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    size: int
    """Channels of a head; heads · size need not be the width."""
    hidden: int
    """Channels inside the feed-forward part."""
    eps: float
    qk_norm: bool = False
    qkv_bias: bool = False
    out_bias: bool = False

    @property
    def qkv(self) -> int:
        return (self.heads + 2 * self.kv_heads) * self.size


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One layer's parameters, however its checkpoint spells them."""

    attention_norm: Tensor
    """[width]"""
    qkv: Linear
    """width → queries, keys and values one after the other."""
    qk_norm: Tensor | None
    """[heads + kv heads, size]: what each head's norm multiplies."""
    out: Linear
    ffn_norm: Tensor
    """[width]"""
    gate_up: Linear
    """width → gate and up one after the other."""
    down: Linear


class Layer:
    """x + out(attention(norm(x))), then + down(SiLU(gate) · up) of the norm of that."""

    def __init__(self, shape: LayerShape, weights: LayerWeights, rope: Rope) -> None:
        self._shape, self._weights, self._rope = shape, weights, rope

    def __call__(self, rows: Tensor, turns: Tensor, index: int, attend: Attend) -> Tensor:
        """rows [n, width], turns of their positions, own number within the cache → [n, width]."""
        weights, eps = self._weights, self._shape.eps
        rows = rows + weights.out(self._mix(rms_norm(rows, weights.attention_norm, eps), turns, index, attend))
        gate, up = weights.gate_up(rms_norm(rows, weights.ffn_norm, eps)).chunk(2, dim=-1)
        return rows + weights.down(fn.silu(gate) * up)

    def _mix(self, rows: Tensor, turns: Tensor, index: int, attend: Attend) -> Tensor:
        shape = self._shape
        heads = self._weights.qkv(rows).view(len(rows), -1, shape.size)
        turned, value = heads[:, : -shape.kv_heads], heads[:, -shape.kv_heads :]
        if self._weights.qk_norm is not None:
            turned = rms_norm(turned, self._weights.qk_norm, shape.eps)
        turned = self._rope.turn(turned, turns)
        return attend(index, turned[:, : shape.heads], turned[:, shape.heads :], value).flatten(1)


class Transformer:
    """Layers and the final norm."""

    def __init__(self, shape: LayerShape, layers: list[LayerWeights], norm: Tensor, rope: Rope) -> None:
        self.shape, self.norm, self.rope = shape, norm, rope
        self.layers = [Layer(shape, weights, rope) for weights in layers]

    def __call__(self, rows: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """rows [n, width] at `positions` [n] → before the final norm [n, width]."""
        turns = self.rope.at(positions)
        for index, layer in enumerate(self.layers):
            rows = layer(rows, turns, index, attend)
        return rows

    def normed(self, rows: Tensor) -> Tensor:
        """The final norm."""
        return rms_norm(rows, self.norm, self.shape.eps)


def read_llama_layer(weights: Reader, shape: LayerShape) -> LayerWeights:
    """A layer as Llama's own code spells it, and all that descends from it: `attention.wqkv` or `.wq`, `.wk`, `.wv`;
    `feed_forward.w1` (gate), `.w3` (up), `.w2` (down).
    """
    attention, ffn = weights.at("attention"), weights.at("feed_forward")
    inner = shape.heads * shape.size
    gate_up = torch.cat([ffn.take(f"{name}.weight", (shape.hidden, shape.width)) for name in ("w1", "w3")])
    return LayerWeights(
        attention_norm=weights.take("attention_norm.weight", (shape.width,)),
        qkv=_read_qkv(attention, shape),
        qk_norm=_read_qk_norm(attention, shape) if shape.qk_norm else None,
        out=Linear.read(attention, "wo", shape.width, inner, shape.out_bias),
        ffn_norm=weights.take("ffn_norm.weight", (shape.width,)),
        gate_up=Linear(gate_up),
        down=Linear.read(ffn, "w2", shape.width, shape.hidden),
    )


def _read_qkv(attention: Reader, shape: LayerShape) -> Linear:
    if not attention.has("wq.weight"):
        return Linear.read(attention, "wqkv", shape.qkv, shape.width, shape.qkv_bias)
    outputs = {"wq": shape.heads * shape.size, "wk": shape.kv_heads * shape.size, "wv": shape.kv_heads * shape.size}
    weight = torch.cat([attention.take(f"{name}.weight", (rows, shape.width)) for name, rows in outputs.items()])
    biases = [attention.take(f"{name}.bias", (rows,)) for name, rows in outputs.items()] if shape.qkv_bias else []
    return Linear(weight, torch.cat(biases) if biases else None)


def _read_qk_norm(attention: Reader, shape: LayerShape) -> Tensor:
    query, key = (attention.take(f"{name}.weight", (shape.size,)) for name in ("q_norm", "k_norm"))
    return torch.cat([query.expand(shape.heads, -1), key.expand(shape.kv_heads, -1)])
