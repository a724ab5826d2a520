"""Keys and values of many sequences in pages of one pool, and who holds which page.

A page whose positions are all computed may be named by what it was computed from. Another sequence that begins with the
same content then shares it. Pages that nobody holds keep their name, the least recently used one is taken first.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

SCRAP = 0
"""A page that nobody owns: rows that only fill a fixed shape write there."""


class OutOfPages(Exception):
    """Every page is held by somebody."""


@dataclass(frozen=True, slots=True)
class KvShape:
    """What one position takes."""

    layers: int
    kv_heads: int
    size: int
    dtype: torch.dtype
    device: torch.device


class PagedKv:
    """The tensors: `keys` and `values` [layers, pages, page, kv heads, size]."""

    def __init__(self, shape: KvShape, pages: int, page: int) -> None:
        """`page`: positions in each."""
        self.page = page
        room = (shape.layers, pages, page, shape.kv_heads, shape.size)
        self.keys = torch.zeros(room, dtype=shape.dtype, device=shape.device)
        self.values = torch.zeros_like(self.keys)

    def pages_for(self, length: int) -> int:
        return -(-length // self.page)

    def places(self, tables: Tensor, positions: Tensor) -> Tensor:
        """Where positions [..., n] of the sequences with these pages [..., m] lie, counted through the whole pool."""
        return tables.gather(-1, positions // self.page) * self.page + positions % self.page

    def write(self, layer: int, places: Tensor, key: Tensor, value: Tensor) -> None:
        """`key` and `value`: [n, kv heads, size], for `places` [n]."""
        self.keys[layer].flatten(0, 1).index_copy_(0, places, key)
        self.values[layer].flatten(0, 1).index_copy_(0, places, value)

    def read(self, layer: int, pages: Tensor) -> tuple[Tensor, Tensor]:
        """All positions of `pages` [m], in order: two copies [m · page, kv heads, size]."""
        return self.keys[layer, pages].flatten(0, 1), self.values[layer, pages].flatten(0, 1)


def content_names(columns: NDArray[np.int64], page: int, salt: bytes = b"") -> list[bytes]:
    """Names of all full pages of a sequence [width, length]: each covers everything before it, and every row."""
    names: list[bytes] = []
    name = salt
    for start in range(0, columns.shape[1] - page + 1, page):
        content = np.ascontiguousarray(columns[:, start : start + page].T)
        name = blake2b(name + content.tobytes(), digest_size=16).digest()
        names.append(name)
    return names


class PagePool:
    """Counts who holds each page. Page 0 is the scrap page and is never given out."""

    def __init__(self, pages: int) -> None:
        self._count = pages
        self._free = list(range(pages - 1, SCRAP, -1))
        self._holders = [0] * pages
        self._names: dict[int, bytes] = {}
        self._named: dict[bytes, int] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()
        """Named pages that nobody holds, the least recently used first."""

    @property
    def size(self) -> int:
        """Pages that can be held at once."""
        return self._count - 1

    @property
    def available(self) -> int:
        """Pages that `take` can still give."""
        return len(self._free) + len(self._idle)

    def take(self) -> int:
        """A page of nobody's. Raises OutOfPages."""
        if self._free:
            page = self._free.pop()
        elif self._idle:
            page, _ = self._idle.popitem(last=False)
            del self._named[self._names.pop(page)]
        else:
            raise OutOfPages
        self._holders[page] = 1
        return page

    def share(self, name: bytes) -> int | None:
        """The page with this content, held once more; None if there is none."""
        page = self._named.get(name)
        if page is None:
            return None
        self._idle.pop(page, None)
        self._holders[page] += 1
        return page

    def name(self, page: int, name: bytes) -> None:
        """Tell what a held page contains. Content that another page has already stays with that one."""
        if name not in self._named and page not in self._names:
            self._named[name] = page
            self._names[page] = name

    def release(self, pages: Iterable[int]) -> None:
        """Let go of pages that were taken or shared."""
        for page in pages:
            self._holders[page] -= 1
            if self._holders[page] == 0:
                if page in self._names:
                    self._idle[page] = None
                else:
                    self._free.append(page)

    def audit(self, held: Iterable[int]) -> None:
        """Raises AssertionError unless exactly `held` (a page once for each holder) are held, and none is lost."""
        holders = [0] * self._count
        for page in held:
            holders[page] += 1
        assert holders == self._holders, "pages are held by somebody unknown"
        idle, free = set(self._idle), set(self._free)
        in_use = {page for page, count in enumerate(holders) if count}
        assert len(free) == len(self._free), "a page is free twice"
        assert sorted([*idle, *free, *in_use]) == list(range(1, self._count)), "a page is lost, or in two places"
        assert {name: page for page, name in self._names.items()} == self._named, "names are not one to one"
