"""Causal attention with grouped heads, and the caches whose keys and values it goes over.

A layer hands its queries, keys and values to an `Attend`; which cache stands behind it is the caller's business.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as fn

from speechmill.models.common.decode_attention import decode
from speechmill.models.common.paged_kv import PagedKv


class Attend(Protocol):
    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Keeps the rows' keys and values [n, kv heads, size] and attends for queries [n, heads, size] → the same."""


def grouped_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
    """Softmax attention, scale 1/√size; query head h reads kv head h // (heads / kv heads).

    query [b, n, heads, size], key and value [b, length, kv heads, size], mask bool [n, length] → [b, n, heads, size].
    The heads of a group become rows of one product, so that keys and values are read once for all of them.
    """
    batch, rows, heads, size = query.shape
    kv_heads = key.shape[2]
    group = heads // kv_heads
    folded = query.view(batch, rows, kv_heads, group, size).permute(0, 2, 1, 3, 4).reshape(batch, kv_heads, -1, size)
    seen = None if mask is None else mask.repeat_interleave(group, 0)
    mixed = fn.scaled_dot_product_attention(folded, key.transpose(1, 2), value.transpose(1, 2), attn_mask=seen)
    return mixed.view(batch, kv_heads, rows, group, size).permute(0, 2, 1, 3, 4).reshape(query.shape)


class PrefillAttention:
    """Consecutive rows of one sequence over its pages.

    Queries go in tiles of one page at fixed places, so that where a sequence was cut for computing leaves no trace.
    """

    def __init__(self, cache: PagedKv, pages: Tensor, start: int, count: int) -> None:
        """`pages`: int64, all of the sequence's; the rows are those at `start` and the `count` - 1 after it.

        Rows beyond `count` fill a fixed shape: their keys and values go to the scrap page.
        """
        self._cache = cache
        self._pages = pages
        self._start, self._count = start, count
        positions = torch.arange(start, start + count, device=pages.device)
        self._places = cache.places(pages, positions)
        self._tiles = list(self._cut())

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        self._cache.write(layer, self._places, key[: self._count], value[: self._count])
        keys, values = (part[None] for part in self._cache.read(layer, self._pages))
        mixed = torch.zeros_like(query)
        for rows, end, mask in self._tiles:
            mixed[rows] = grouped_attention(query[None, rows], keys[:, :end], values[:, :end], mask)[0]
        return mixed

    def _cut(self) -> Iterator[tuple[slice, int, Tensor | None]]:
        """Rows of each tile, how many positions they see at most, and which."""
        start, end = self._start, self._start + self._count
        for first in range(start, end, self._cache.page):
            last = min(first + self._cache.page, end)
            yield slice(first - start, last - start), last, _mask(first, last, self._pages.device)


def _mask(first: int, last: int, device: torch.device) -> Tensor | None:
    """For queries at first..last-1 over keys at 0..last-1."""
    if last - first == 1:
        return None
    return torch.ones(last - first, last, dtype=torch.bool, device=device).tril(first)


class RowsAttention:
    """One row for each of several sequences, or several of one; each over its own pages. Plain PyTorch.

    Every row is computed by itself, with nothing in it that depends on the others.
    """

    def __init__(self, cache: PagedKv, tables: Tensor, lengths: Sequence[int]) -> None:
        """`tables`: int64 [n, pages]; `lengths`: positions that each row sees, its own included."""
        self._cache = cache
        self._lengths = lengths
        self._pages = [table[: cache.pages_for(length)] for table, length in zip(tables, lengths, strict=True)]
        positions = torch.tensor(lengths, device=tables.device)[:, None] - 1
        self._places = cache.places(tables, positions)[:, 0]

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        self._cache.write(layer, self._places, key, value)
        return torch.cat([self._row(layer, row, query) for row in range(len(query))])

    def _row(self, layer: int, row: int, query: Tensor) -> Tensor:
        length = self._lengths[row]
        keys, values = (part[None, :length] for part in self._cache.read(layer, self._pages[row]))
        return grouped_attention(query[None, row : row + 1], keys, values)[0]


class KernelAttention:
    """As RowsAttention, by the Triton kernel. Lengths stay on the device, so a CUDA graph can hold it."""

    def __init__(self, cache: PagedKv, tables: Tensor, lengths: Tensor) -> None:
        """`tables`: int64 [n, pages]; `lengths`: int64 [n]."""
        self._cache = cache
        self._tables, self._lengths = tables.int(), lengths.int()
        self._places = cache.places(tables, lengths[:, None] - 1)[:, 0]

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        self._cache.write(layer, self._places, key, value)
        pages = self._cache.keys[layer], self._cache.values[layer]
        return decode(query, *pages, self._tables, self._lengths)


class StepAttention:
    """A few positions of many short sequences that all stand at the same place, as codebooks within a frame do."""

    def __init__(self, layers: int, rows: int, length: int, kv_heads: int, size: int, like: Tensor) -> None:
        """Room for `length` positions of `rows` sequences, in the dtype and on the device of `like`."""
        self._keys = like.new_empty(layers, rows, length, kv_heads, size)
        self._values = torch.empty_like(self._keys)
        self._rows = rows
        self._end = 0

    def advance(self, count: int) -> Tensor:
        """Before the next `count` positions of every sequence go through the layers: which they are, for each row."""
        start, self._end = self._end, self._end + count
        self._fresh = slice(start, self._end)
        self._mask = _mask(start, self._end, self._keys.device)
        return torch.arange(start, self._end, device=self._keys.device).repeat(self._rows)

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Rows are sequence-major: all fresh positions of the first sequence, then of the second."""
        query, key, value = (part.view(self._rows, -1, *part.shape[1:]) for part in (query, key, value))
        self._keys[layer, :, self._fresh] = key
        self._values[layer, :, self._fresh] = value
        keys, values = self._keys[layer, :, : self._end], self._values[layer, :, : self._end]
        return grouped_attention(query, keys, values, self._mask).flatten(0, 1)
