"""The Triton kernels behind `decode_attention`, and their launch. Importing this needs Triton."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

import math
import os

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 64
"""Positions that a program reads at a time."""
MIN_GROUP = 16
"""Rows that a tensor core takes at least."""
PROCESSORS = 132
"""Of an H200; two programs for each are enough to hide memory's latency."""


@triton.jit
def _attend_split(
    query, keys, values, tables, lengths, maxima, sums, mixed,
    query_row, query_head, page_stride, place_stride, kv_stride, table_row, scale, split_length,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, GROUP: tl.constexpr, SIZE: tl.constexpr, WIDE: tl.constexpr,
    PAGE: tl.constexpr, BLOCK: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    row, kv_head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    splits = tl.num_programs(2)
    length = tl.load(lengths + row)
    start = split * split_length
    end = tl.minimum(length, start + split_length)
    heads, channels = tl.arange(0, GROUP), tl.arange(0, WIDE)
    here = heads < HEADS // KV_HEADS
    head = kv_head * (HEADS // KV_HEADS) + heads
    inside = channels < SIZE
    q = tl.load(
        query + row * query_row + head[:, None] * query_head + channels[None, :],
        mask=here[:, None] & inside[None, :], other=0.0,
    )  # fmt: skip
    if UPCAST:
        q = q.to(tl.float32)
    top = tl.full([GROUP], float("-inf"), tl.float32)
    total = tl.zeros([GROUP], tl.float32)
    out = tl.zeros([GROUP, WIDE], tl.float32)
    for first in range(start, end, BLOCK):
        places = first + tl.arange(0, BLOCK)
        seen = places < end
        page = tl.load(tables + row * table_row + places // PAGE, mask=seen, other=0).to(tl.int64)
        offsets = page * page_stride + (places % PAGE) * place_stride + kv_head * kv_stride
        read = seen[:, None] & inside[None, :]
        k = tl.load(keys + offsets[:, None] + channels[None, :], mask=read, other=0.0)
        v = tl.load(values + offsets[:, None] + channels[None, :], mask=read, other=0.0)
        if UPCAST:
            k, v = k.to(tl.float32), v.to(tl.float32)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        scores = tl.where(seen[None, :], scores, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, 1))
        shrink = tl.exp2(top - higher)
        weights = tl.exp2(scores - higher[:, None])
        total = total * shrink + tl.sum(weights, 1)
        out = out * shrink[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
        top = higher
    at = (row * HEADS + head) * splits + split
    tl.store(maxima + at, top, mask=here)
    tl.store(sums + at, total, mask=here)
    tl.store(mixed + at[:, None] * SIZE + channels[None, :], out, mask=here[:, None] & inside[None, :])


@triton.jit
def _join_splits(maxima, sums, mixed, out, splits, SPLITS: tl.constexpr, SIZE: tl.constexpr, WIDE: tl.constexpr):
    at = tl.program_id(0) * splits
    parts, channels = tl.arange(0, SPLITS), tl.arange(0, WIDE)
    there, inside = parts < splits, channels < SIZE
    top = tl.load(maxima + at + parts, mask=there, other=float("-inf"))
    highest = tl.maximum(tl.max(top, 0), -1e30)  # of a length of 0 all are -inf
    weights = tl.exp2(top - highest)
    total = tl.sum(weights * tl.load(sums + at + parts, mask=there, other=0.0), 0)
    read = there[:, None] & inside[None, :]
    rows = tl.load(mixed + (at + parts)[:, None] * SIZE + channels[None, :], mask=read, other=0.0)
    joined = tl.sum(weights[:, None] * rows, 0) / tl.where(total == 0.0, 1.0, total)
    tl.store(out + tl.program_id(0) * SIZE + channels, joined.to(out.dtype.element_ty), mask=inside)


def decode(query: Tensor, keys: Tensor, values: Tensor, tables: Tensor, lengths: Tensor, splits: int) -> Tensor:
    """See `decode_attention.decode`."""
    rows, heads, size = query.shape
    page, kv_heads = keys.shape[1:3]
    longest = tables.shape[1] * page
    query = query.contiguous()
    splits, split_length = _split(rows * kv_heads, longest, splits)
    maxima = torch.empty(rows, heads, splits, dtype=torch.float32, device=query.device)
    sums, mixed = torch.empty_like(maxima), maxima.new_empty(rows, heads, splits, size)
    out = torch.empty_like(query)
    wide = max(triton.next_power_of_2(size), 16)
    _attend_split[rows, kv_heads, splits](
        query, keys, values, tables, lengths, maxima, sums, mixed,
        query.stride(0), query.stride(1), *keys.stride()[:3], tables.stride(0),
        math.log2(math.e) / math.sqrt(size), split_length,
        HEADS=heads, KV_HEADS=kv_heads, GROUP=max(triton.next_power_of_2(heads // kv_heads), MIN_GROUP),
        SIZE=size, WIDE=wide, PAGE=page, BLOCK=BLOCK, UPCAST=interpreted(),
    )  # fmt: skip
    _join_splits[(rows * heads,)](
        maxima, sums, mixed, out, splits, SPLITS=triton.next_power_of_2(splits), SIZE=size, WIDE=wide
    )
    return out


def interpreted() -> bool:
    """Triton's interpreter multiplies the raw words of bfloat16 operands; it is given float32."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def _split(programs: int, longest: int, splits: int) -> tuple[int, int]:
    """How many splits, and positions in each: whole blocks."""
    wanted = splits or min(max(-(-2 * PROCESSORS // programs), 1), -(-longest // BLOCK))
    length = -(-longest // (wanted * BLOCK)) * BLOCK
    return -(-longest // length), length
