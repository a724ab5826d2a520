"""Residual vector quantisers: codebooks are searched in a narrow space, and what they mean is added in a wide one."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as fn


@dataclass(frozen=True, slots=True)
class CosineSearch:
    """How a codebook is searched: the entry with the largest cosine to the projected row, the first of equals."""

    project: Tensor
    """[narrow, channels]."""
    bias: Tensor
    directions: Tensor
    """[entries, narrow], of unit length."""

    @classmethod
    def of(cls, project: Tensor, bias: Tensor, codebook: Tensor) -> "CosineSearch":
        return cls(project, bias, fn.normalize(codebook))

    def __call__(self, rows: Tensor) -> Tensor:
        """[..., channels] → int64 [...]. The length of a row does not matter."""
        return (fn.linear(rows, self.project, self.bias) @ self.directions.T).argmax(-1)


class NearestSearch:
    """The entry of a codebook that is nearest to a row, by Euclid's distance; the first of equals."""

    def __init__(self, codebook: Tensor) -> None:
        """`codebook`: [entries, channels]."""
        self.codebook = codebook
        self._half_squares = codebook.square().sum(1) / 2

    def __call__(self, rows: Tensor) -> Tensor:
        """[..., channels] → int64 [...]."""
        return (rows @ self.codebook.T - self._half_squares).argmax(-1)


def residual_codes(rows: Tensor, books: Iterable[tuple[Callable[[Tensor], Tensor], Tensor]]) -> Tensor:
    """[..., channels] → codes int64 [..., codebooks]: each is searched for what those before it left.

    `books`: of each codebook the search, rows → codes, and what its codes mean, [entries, channels].
    """
    codes: list[Tensor] = []
    for search, table in books:
        codes.append(search(rows))
        rows = rows - fn.embedding(codes[-1], table)
    return torch.stack(codes, -1)


class ResidualQuantizer:
    """Codes of rows that are projected once; each codebook is searched for what those before it left."""

    def __init__(self, project: Tensor, codebooks: Sequence[Tensor]) -> None:
        """`project`: [narrow, channels]; each codebook: [entries, narrow]."""
        self.project = project
        self.searches = [NearestSearch(codebook) for codebook in codebooks]

    def __call__(self, rows: Tensor) -> Tensor:
        """[streams, frames, channels] → codes int64 [streams, frames, codebooks]."""
        books = [(search, search.codebook) for search in self.searches]
        return residual_codes(fn.linear(rows, self.project), books)


class CodeVectors:
    """What each code of each codebook adds to a frame: its entry, projected to the wide space once for all."""

    def __init__(self, tables: Sequence[Tensor]) -> None:
        """One [entries, channels] per codebook; they may differ in entries."""
        sizes = [len(table) for table in tables]
        self.tables = torch.cat(list(tables))
        self.books = torch.split(self.tables, sizes)
        self.last = torch.tensor([size - 1 for size in sizes], device=self.tables.device)
        self.first = torch.tensor([sum(sizes[:book]) for book in range(len(sizes))], device=self.tables.device)

    def __call__(self, codes: Tensor) -> Tensor:
        """[streams, frames, codebooks] integers → [streams, frames, channels]. Codes beyond a codebook are its last."""
        streams, frames, _ = codes.shape
        rows = codes.clamp(min=0).minimum(self.last) + self.first
        return fn.embedding_bag(rows.flatten(0, 1), self.tables, mode="sum").view(streams, frames, -1)

    def encode(self, rows: Tensor, searches: Sequence[CosineSearch]) -> Tensor:
        """[streams, frames, channels] → codes int64 [streams, frames, codebooks], each for what those before left."""
        return residual_codes(rows, zip(searches, self.books, strict=True))
