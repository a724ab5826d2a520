"""Convolutions over streams that arrive in chunks, several streams in one call.

Activations are rows [positions, channels]. A convolution of odd width that pads with zeros at both ends has a
`reach`: the positions that it sees on either side. A stream keeps the last 2·reach rows of every convolution's
input and appends reach zero rows when it ends, so each convolution answers `reach` rows late and the sum of all
chunks equals one call over everything, without computing a row twice.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as fn


@dataclass(slots=True)
class Stream:
    """What one stream remembers of the inputs of the convolutions that it passes, in their order."""

    context: list[Tensor]
    """Per convolution [at most 2·reach, channels]."""
    ended: bool = False
    """The rows that are on their way are the last ones."""

    @classmethod
    def start(cls, channels: Sequence[int], reach: int) -> "Stream":
        """A stream at its beginning: `reach` zero rows of padding before each convolution."""
        return cls([torch.zeros(reach, width) for width in channels])


class Lanes:
    """Rows of several streams laid end to end, so that everything pointwise is one call over all of them."""

    def __init__(self, streams: Sequence[Stream], rows: Sequence[Tensor], reach: int) -> None:
        self.streams = streams
        self.lengths = [len(part) for part in rows]
        self.rows = torch.cat(list(rows))  # [sum(lengths), channels]
        self.reach = reach

    def widen(self, layer: int) -> Tensor:
        """The rows with each stream's context around them, ready for convolution number `layer`.

        After it `valid` picks what the convolution is right about, and `lengths` counts that.
        """
        parts: list[Tensor] = []
        for stream, fresh in zip(self.streams, torch.split(self.rows, self.lengths), strict=True):
            tail = [fresh.new_zeros(self.reach, fresh.shape[1])] if stream.ended else []
            wide = torch.cat([stream.context[layer], fresh, *tail])
            stream.context[layer] = wide[-2 * self.reach :].clone()
            parts.append(wide)
        self.lengths = [len(part) - 2 * self.reach for part in parts]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def valid(self, rows: Tensor) -> Tensor:
        """Of `rows` [wide rows - 2·reach, channels], those that do not straddle two streams."""
        if len(self.lengths) == 1:
            return rows
        sizes = [size for length in self.lengths for size in (length, 2 * self.reach)][:-1]
        return torch.cat(torch.split(rows, sizes)[::2])


def pad_rows(rows: Tensor, reach: int) -> Tensor:
    """Zero padding on both ends for a stream that is all there: [n, channels] → [n + 2·reach, channels]."""
    return fn.pad(rows, (0, 0, reach, reach))


def depthwise(wide: Tensor, taps: Tensor, bias: Tensor, dilation: int = 1) -> Tensor:
    """Depthwise convolution without padding: [n + (k-1)·dilation, channels], taps [k, channels] → [n, channels].

    Two vector operations over overlapping windows: on a CPU, up to some 200 rows, faster than `conv1d` and a loop.
    """
    width, channels = taps.shape
    count = len(wide) - (width - 1) * dilation
    windows = wide.contiguous().as_strided((count, width, channels), (channels, dilation * channels, 1))
    return (windows * taps).sum(1).add_(bias)


def unfold_rows(wide: Tensor, width: int) -> Tensor:
    """Neighbours side by side, for a dense convolution as one matrix product.

    [n + width - 1, channels] → [n, width·channels].
    """
    count, channels = len(wide) - width + 1, wide.shape[1]
    return wide.contiguous().as_strided((count, width * channels), (channels, 1))
