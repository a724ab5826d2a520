"""Decoder layers of the Llama and Qwen kind: pre-norm, rotary positions, grouped heads, gated feed-forward.

Activations are rows [n, width], of any mixture of sequences: what connects rows is the `Attend` that a call brings.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as fn

from speechmill.models.common.attention import Attend
from speechmill.models.common.checkpoint import Reader
from speechmill.models.common.config import count, positive
from speechmill.models.common.linear import Linear
from speechmill.models.common.norm import rms_norm
from speechmill.models.common.rope import Rope, frequencies


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
    qk_cast_last: bool = False
    """The norm of queries and keys goes back to the model's dtype behind its weight only."""
    qkv_bias: bool = False
    out_bias: bool = False

    @property
    def qkv(self) -> int:
        return (self.heads + 2 * self.kv_heads) * self.size

    @property
    def parameters(self) -> int:
        """Of all dense layers."""
        attention = self.width * (self.qkv + self.heads * self.size)
        return self.layers * (attention + 3 * self.hidden * self.width)


def read_layer_shape(config: Mapping[str, Any], eps: str = "rms_norm_eps", **traits: bool) -> LayerShape:
    """Of a config as Transformers spells it. `eps`: what the norms' is called; `traits`: fields that follow `eps`.

    Raises KeyError and ValueError as `config.count` does.
    """
    width, heads = count(config, "hidden_size"), count(config, "num_attention_heads")
    return LayerShape(
        layers=count(config, "num_hidden_layers"),
        width=width,
        heads=heads,
        kv_heads=count(config, "num_key_value_heads"),
        size=width // heads if config.get("head_dim") is None else count(config, "head_dim"),
        hidden=count(config, "intermediate_size"),
        eps=positive(config, eps),
        **traits,
    )


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
            turned = rms_norm(turned, self._weights.qk_norm, shape.eps, shape.qk_cast_last)
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
    gate_up = _read_gate_up(ffn, shape, ("w1", "w3"))
    attention_norm = weights.take("attention_norm.weight", (shape.width,))
    if attention.has("wq.weight"):
        qkv = _read_qkv(attention, shape, ("wq", "wk", "wv"))
    else:
        qkv = Linear.read(attention, "wqkv", shape.qkv, shape.width, shape.qkv_bias)
    return LayerWeights(
        attention_norm=attention_norm,
        qkv=qkv,
        qk_norm=_read_qk_norm(attention, shape) if shape.qk_norm else None,
        out=Linear.read(attention, "wo", shape.width, shape.heads * shape.size, shape.out_bias),
        ffn_norm=weights.take("ffn_norm.weight", (shape.width,)),
        gate_up=gate_up,
        down=Linear.read(ffn, "w2", shape.width, shape.hidden),
    )


def read_qwen_layer(weights: Reader, shape: LayerShape) -> LayerWeights:
    """A layer as Transformers spells those of Llama, Qwen and their kin: `self_attn.q_proj`, `mlp.gate_proj`."""
    attention, mlp = weights.at("self_attn"), weights.at("mlp")
    return LayerWeights(
        attention_norm=weights.take("input_layernorm.weight", (shape.width,)),
        qkv=_read_qkv(attention, shape, ("q_proj", "k_proj", "v_proj")),
        qk_norm=_read_qk_norm(attention, shape) if shape.qk_norm else None,
        out=Linear.read(attention, "o_proj", shape.width, shape.heads * shape.size, shape.out_bias),
        ffn_norm=weights.take("post_attention_layernorm.weight", (shape.width,)),
        gate_up=_read_gate_up(mlp, shape, ("gate_proj", "up_proj")),
        down=Linear.read(mlp, "down_proj", shape.width, shape.hidden),
    )


def read_qwen_transformer(
    weights: Reader, shape: LayerShape, positions: int, rope_base: float, dtype: torch.dtype, device: torch.device
) -> Transformer:
    """Layers and norm as Transformers spells them. Rotary tables are in the model's dtype, as they are there."""
    rope = Rope(positions, frequencies(shape.size, rope_base), "half", dtype, device)
    layers = [read_qwen_layer(weights.at(f"layers.{index}"), shape) for index in range(shape.layers)]
    return Transformer(shape, layers, weights.take("norm.weight", (shape.width,)), rope)


def _read_qkv(attention: Reader, shape: LayerShape, names: tuple[str, str, str]) -> Linear:
    """Queries, keys and values, which stand apart."""
    heads = (shape.heads, shape.kv_heads, shape.kv_heads)
    rows = {name: count * shape.size for name, count in zip(names, heads, strict=True)}
    weight = torch.cat([attention.take(f"{name}.weight", (count, shape.width)) for name, count in rows.items()])
    biases = [attention.take(f"{name}.bias", (count,)) for name, count in rows.items()] if shape.qkv_bias else []
    return Linear(weight, torch.cat(biases) if biases else None)


def _read_gate_up(ffn: Reader, shape: LayerShape, names: tuple[str, str]) -> Linear:
    return Linear(torch.cat([ffn.take(f"{name}.weight", (shape.hidden, shape.width)) for name in names]))


def _read_qk_norm(attention: Reader, shape: LayerShape) -> Tensor:
    query, key = (attention.take(f"{name}.weight", (shape.size,)) for name in ("q_norm", "k_norm"))
    return torch.cat([query.expand(shape.heads, -1), key.expand(shape.kv_heads, -1)])
