"""Residual vector quantisers whose codebooks are looked up in a narrow space and added in a wide one."""

from collections.abc import Sequence
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


class CodeVectors:
    """What each code of each codebook adds to a frame: its entry, projected to the wide space once for all."""

    def __init__(self, tables: Sequence[Tensor]) -> None:
        """One [entries, channels] per codebook; they may differ in entries."""
        sizes = [len(table) for table in tables]
        self.tables = torch.cat(list(tables))
        self.last = torch.tensor([size - 1 for size in sizes], device=self.tables.device)
        self.first = torch.tensor([sum(sizes[:book]) for book in range(len(sizes))], device=self.tables.device)

    def __call__(self, codes: Tensor) -> Tensor:
        """[streams, frames, codebooks] integers → [streams, frames, channels]. Codes beyond a codebook are its last."""
        streams, frames, _ = codes.shape
        rows = codes.clamp(min=0).minimum(self.last) + self.first
        return fn.embedding_bag(rows.flatten(0, 1), self.tables, mode="sum").view(streams, frames, -1)

    def encode(self, rows: Tensor, searches: Sequence[CosineSearch]) -> Tensor:
        """[streams, frames, channels] → codes int64 [streams, frames, codebooks], each for what those before left."""
        rest, codes = rows, []
        for search, first in zip(searches, self.first, strict=True):
            found = search(rest)
            rest = rest - fn.embedding(found + first, self.tables)
            codes.append(found)
        return torch.stack(codes, -1)
