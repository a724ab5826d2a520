"""A causal transformer whose attention sees a window of the past, over streams that arrive in chunks.

Pre-norm layers with rotary positions counted from the stream's beginning and a scale on each branch: RMSNorm and SwiGLU
as in Llama, or LayerNorm and an exact GELU as in GPT-2.
Keys and values of the last window - 1 rows are carried; memory grows with the chunk, not with its square.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as fn

from speechmill.models.common.carry import Batch, Carry
from speechmill.models.common.linear import Linear
from speechmill.models.common.norm import rms_norm
from speechmill.models.common.rope import Rope

_BLOCK = 128
"""Queries whose scores are computed at once."""
Norm = tuple[Tensor, Tensor | None]
"""Weight and bias. Without a bias it is an RMSNorm, else a LayerNorm."""


@dataclass(frozen=True, slots=True)
class WindowShape:
    """What the weights do not tell."""

    heads: int
    kv_heads: int
    head_dim: int
    window: int
    """Rows that a query sees, its own included."""
    eps: float
    """Of every norm."""


@dataclass(frozen=True, slots=True)
class WindowLayerWeights:
    qkv: Tensor
    """[(heads + 2·kv_heads)·head_dim, channels], queries first."""
    out: Tensor
    """[channels, heads·head_dim]."""
    attention_norm: Norm
    attention_scale: Tensor
    gate: Tensor | None
    """[hidden, channels], as `up`; None where a GELU takes the place of the gate."""
    up: Tensor
    down: Tensor
    """[channels, hidden]."""
    feed_norm: Norm
    feed_scale: Tensor


class WindowTransformer:
    """Rows [streams, n, channels] → the same shape, after a last norm if there is one."""

    def __init__(
        self, layers: Sequence[WindowLayerWeights], norm: Norm | None, shape: WindowShape, rope: Rope, carry: Carry
    ) -> None:
        self.shape, self.rope, self.norm = shape, rope, norm
        self.layers = [_Layer(weights, shape, rope, carry) for weights in layers]

    def __call__(self, rows: Tensor, batch: Batch) -> Tensor:
        streams, count, _ = rows.shape
        turns = self.rope.at(batch.positions(count).flatten())
        masks = self._masks(count, batch.seen(count))
        rows = rows.flatten(0, 1)
        for layer in self.layers:
            rows = layer(rows, batch, turns, masks)
        if self.norm is not None:
            rows = _normed(rows, self.norm, self.shape.eps)
        return rows.view(streams, count, -1)

    def _masks(self, count: int, seen: Tensor) -> list[Tensor]:
        """For each block of queries which keys it sees, [streams or 1, 1, queries, past + queries]."""
        past, device = self.shape.window - 1, seen.device
        query = torch.arange(min(_BLOCK, count), device=device)[:, None]
        key = torch.arange(min(_BLOCK, count) + past, device=device)
        band = (key >= query) & (key <= query + past)
        masks: list[Tensor] = []
        for start in range(0, count, _BLOCK):
            size = min(_BLOCK, count - start)
            own = band[:size, : size + past]
            if start < past:
                own = own & (key[: size + past] >= past - start - seen[:, None, None])
            masks.append(own.view(-1, 1, size, size + past))
        return masks


class _Layer:
    def __init__(self, weights: WindowLayerWeights, shape: WindowShape, rope: Rope, carry: Carry) -> None:
        self.shape, self.rope = shape, rope
        self.attention_norm, self.feed_norm = weights.attention_norm, weights.feed_norm
        self.qkv = Linear(weights.qkv)
        # scales of branches are scales of the rows of their last matrices
        self.out = Linear(weights.attention_scale[:, None] * weights.out)
        self.is_gated = weights.gate is not None
        self.up = Linear(weights.up if weights.gate is None else torch.cat([weights.gate, weights.up]))
        self.down = Linear(weights.feed_scale[:, None] * weights.down)
        self.part = carry.reserve(shape.window - 1, 2 * shape.kv_heads, shape.head_dim)

    def __call__(self, rows: Tensor, batch: Batch, turns: Tensor, masks: Sequence[Tensor]) -> Tensor:
        """Rows of all streams, [streams·n, channels]."""
        attended = self._attend(_normed(rows, self.attention_norm, self.shape.eps), batch, turns, masks)
        rows = rows + self.out(attended)
        return rows.add_(self.down(self._activate(self.up(_normed(rows, self.feed_norm, self.shape.eps)))))

    def _activate(self, rows: Tensor) -> Tensor:
        if not self.is_gated:
            return fn.gelu(rows)
        gate, up = rows.chunk(2, 1)
        return fn.silu(gate).mul_(up)

    def _attend(self, rows: Tensor, batch: Batch, turns: Tensor, masks: Sequence[Tensor]) -> Tensor:
        """[streams·n, channels] → [streams·n, heads·head_dim]."""
        heads, kv_heads = self.shape.heads, self.shape.kv_heads
        split = self.qkv(rows).view(len(rows), -1, self.shape.head_dim)
        query, key, value = split[:, :heads], split[:, heads : heads + kv_heads], split[:, heads + kv_heads :]
        query, key = self.rope.turn(query, turns), self.rope.turn(key, turns)
        fresh = torch.cat([key, value], 1).view(batch.size, -1, 2 * kv_heads, self.shape.head_dim)
        # each [streams, kv_heads, past + n, head_dim]
        key, value = batch.extend(self.part, fresh).transpose(1, 2).chunk(2, 1)
        query = query.view(batch.size, -1, heads, self.shape.head_dim).transpose(1, 2)
        mixed: list[Tensor] = []
        for index, mask in enumerate(masks):
            start = index * _BLOCK
            queries, keys = slice(start, start + mask.shape[2]), slice(start, start + mask.shape[3])
            block = query[:, :, queries], key[:, :, keys], value[:, :, keys]
            mixed.append(fn.scaled_dot_product_attention(*block, mask, enable_gqa=heads != kv_heads))
        return torch.cat(mixed, 2).transpose(1, 2).flatten(0, 1).flatten(1)


def _normed(rows: Tensor, norm: Norm, eps: float) -> Tensor:
    weight, bias = norm
    return rms_norm(rows, weight, eps) if bias is None else fn.layer_norm(rows, weight.shape, weight, bias, eps)
