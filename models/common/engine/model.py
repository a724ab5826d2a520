"""What a family gives the engine: how its model computes, and what a request is made of.

A position of a sequence is a *column*: `width` integers that the family turns into one input row, such as a token id
and the codes of a frame. A frame is made by running one column; its codes decide the next.

A model that reads while it speaks has a second track: integers that stand *beside* the frames, one of which goes into
the column that follows each frame, and one at *rest* once there are no more of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from speechmill.models.common.attention import Attend
from speechmill.models.common.draws import Draws
from speechmill.models.common.paged_kv import KvShape

Columns = NDArray[np.int64]
"""[width, length]"""
Codes = NDArray[np.uint16]
"""[frames, codes of a frame]"""
Vectors = NDArray[np.float32]
"""[n, channels of an input row]"""
NO_VECTORS: Vectors = np.empty((0, 0), np.float32)
Memory = tuple[Tensor, ...]
"""What sampling remembers of earlier frames, such as a window: int64 tensors [rows, …]."""


@dataclass(frozen=True, slots=True)
class Request:
    """What one sequence is to speak."""

    prompt: Columns
    """At least one column; the last one makes the first frame."""
    key: int
    """Of its random draws (`draws.stream_key`)."""
    settings: tuple[float, ...]
    """Sampling settings, as many and in the order that the family wants them."""
    max_frames: int
    vectors: Vectors = field(default_factory=lambda: NO_VECTORS)
    """Continuous parts of the input, such as how a speaker sounds. The family's columns say which goes where; the last
    one, which is run as those of frames are, has none.
    """
    beside: tuple[int, ...] = ()
    """The second track as far as it is known: entry i goes into the column that follows frame i."""
    rest: int = 0
    """What stands there after the last of them."""
    complete: bool = True
    """Nothing will be added to `beside`. Until then no frame is made that has none."""
    end_expected: bool = False
    """`max_frames` is more than this text can take: without an end by then, the model has lost its way."""

    def track(self, frames: int) -> NDArray[np.int64]:
        """What stands beside the first `frames` frames [frames]."""
        known = np.array(self.beside[:frames], np.int64)
        return np.pad(known, (0, frames - len(known)), constant_values=self.rest)


@dataclass(frozen=True, slots=True)
class FrameRows:
    """One frame's input for a batch; every tensor has a row for each sequence."""

    columns: Tensor
    """int64 [rows, width]"""
    positions: Tensor
    frames: Tensor
    """Number of the frame within its sequence."""
    beside: Tensor
    """What goes into the column that follows, from the second track; the request's `rest` where there is none."""
    settings: Tensor
    """float32 [rows, settings]"""
    memory: Memory
    draws: Draws


@dataclass(frozen=True, slots=True)
class MadeFrames:
    """What came of it."""

    codes: Tensor
    """int64 [rows, codes of a frame]; anything where the sequence ended."""
    ended: Tensor
    """bool [rows]: the model said that it is done, and this is no frame."""
    columns: Tensor
    memory: Memory


class FrameModel(Protocol):
    """A model with its weights in place. It never waits for the device and knows nothing of slots."""

    kv: KvShape
    width: int
    """Integers in a column."""
    codes: int
    """Codes in a frame."""
    positions: int
    """Longest sequence, prompt and frames together."""
    settings: int
    """Sampling settings of a request."""
    beside: int
    """Longest second track; 0 for a model that has none."""

    def prefill(self, columns: Tensor, positions: Tensor, attend: Attend, vectors: Tensor) -> None:
        """Columns int64 [rows, width] at `positions` [rows]: all that counts are the keys and values left behind.

        `vectors`: the request's, float32.
        """

    def frame(self, rows: FrameRows, attend: Attend) -> MadeFrames: ...

    def columns(self, request: Request, codes: Codes) -> Columns:
        """What follows the prompt once these frames were made: a column for each."""

    def memory(self, codes: Codes) -> Memory:
        """After these frames, for one row: tensors [1, …]. Their shapes never change."""


@dataclass(frozen=True, slots=True)
class Made:
    """One frame of one slot."""

    slot: int
    codes: Sequence[int]
    """Empty where the model said that it is done."""
