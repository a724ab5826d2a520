"""What causal layers carry from one chunk of a stream to the next, for many streams at different places.

Activations are rows, [streams, positions, channels]. A causal layer sees a number of rows in front of the one that it
answers, its reach. Each stream keeps the last `reach` rows of each layer's input, zeros at its beginning if the layer
says nothing else, so chunks of any sizes, beside any neighbours, give what one call over everything gives.
"""

from collections.abc import Sequence
from fractions import Fraction
from math import prod

import torch
from torch import Tensor


class Carry:
    """The rows that the layers of a network carry. Each reserves its part when it is made, in the network's order."""

    def __init__(self, rate: int = 1) -> None:
        """`rate`: rows per frame where the first layer stands; frames are what a stream's place is counted in."""
        self.shapes: list[tuple[int, ...]] = []
        self.rate = rate
        self.reach = Fraction(0)
        """Frames before the one at hand that the layers so far can see."""

    def reserve(self, rows: int, *shape: int) -> int:
        """A part of `rows` rows of that shape; answers its number."""
        self.shapes.append((rows, *shape))
        self.reach += Fraction(rows, self.rate)
        return len(self.shapes) - 1


class Streams:
    """The carried rows of all streams: a table [streams, rows, ...] float32 for each part, which grows with them."""

    def __init__(self, carry: Carry, device: torch.device) -> None:
        self.device = device
        self.tables = [torch.zeros(0, *shape, device=device) for shape in carry.shapes]
        self._places: list[int] = []
        self._origins: list[int] = []
        self._free: list[int] = []

    @property
    def bytes_each(self) -> int:
        """Of one stream."""
        return sum(prod(table.shape[1:]) * table.itemsize for table in self.tables)

    def open(self, origin: int = 0) -> int:
        """A new stream, by its number. It stands at frame `origin` and knows nothing of what was before."""
        if not self._free:
            self._grow()
        stream = self._free.pop()
        for table in self.tables:
            table[stream].zero_()
        self._places[stream] = self._origins[stream] = origin
        return stream

    def close(self, stream: int) -> None:
        self._free.append(stream)

    def advance(self, streams: Sequence[int], lengths: Sequence[int]) -> "Batch":
        """The next `lengths` frames of each of these different streams, which stand behind them afterwards."""
        places = [self._places[stream] for stream in streams]
        known = [place - self._origins[stream] for place, stream in zip(places, streams, strict=True)]
        for stream, length in zip(streams, lengths, strict=True):
            self._places[stream] += length
        return Batch(self, streams, lengths, places, known)

    def _grow(self) -> None:
        count = len(self._places)
        more = max(count, 1)
        self.tables = [torch.cat([table, table.new_zeros(more, *table.shape[1:])]) for table in self.tables]
        self._places += [0] * more
        self._origins += [0] * more
        self._free += reversed(range(count, count + more))


class Batch:
    """The next chunk of several streams on its way through the layers; shorter ones are padded at their ends."""

    def __init__(
        self,
        table: Streams,
        streams: Sequence[int],
        lengths: Sequence[int],
        places: Sequence[int],
        known: Sequence[int],
    ) -> None:
        """`known`: frames before each stream's place that it has seen."""
        device = table.device
        self.size = len(streams)
        self._tables = table.tables
        self._streams = torch.tensor(streams, device=device)
        self._longest = max(lengths)
        even = min(lengths) == self._longest
        self._lengths = None if even else torch.tensor(lengths, device=device)
        self._places = torch.tensor(places, device=device)
        self._known = torch.tensor(known, device=device)

    def begin(self, part: int, rows: Tensor) -> None:
        """Streams that begin now carry this row of [streams, 1, ...] everywhere in `part`, in place of zeros."""
        new = self._known == 0
        self._tables[part][self._streams[new]] = rows[new].expand(-1, self._tables[part].shape[1], -1)

    def extend(self, part: int, fresh: Tensor) -> Tensor:
        """[streams, n, ...] → the same behind the carried rows of `part`; the last of all are carried from now on."""
        table = self._tables[part]
        wide = torch.cat([table[self._streams], fresh], 1)
        table[self._streams] = self._last_rows(wide, table.shape[1])
        return wide

    def positions(self, rows: int) -> Tensor:
        """[streams, rows] int64: where in its stream each of the fresh rows stands."""
        first = self._places * (rows // self._longest)
        return first[:, None] + torch.arange(rows, device=first.device)

    def seen(self, rows: int) -> Tensor:
        """[streams] int64: rows before the fresh ones that each stream has seen, at the rate of `rows` fresh rows."""
        return self._known * (rows // self._longest)

    def _last_rows(self, wide: Tensor, count: int) -> Tensor:
        """The `count` rows up to each stream's end."""
        padded = wide.shape[1] - count
        if self._lengths is None:
            return wide[:, padded:]
        first = self._lengths * (padded // self._longest)
        index = first[:, None] + torch.arange(count, device=first.device)
        return wide[torch.arange(len(wide), device=first.device)[:, None], index]
