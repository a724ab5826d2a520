"""Runs the model for the engine: keeps what it needs of every slot on the device, in tensors that never move."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from speechmill.models.common.attention import Attend, KernelAttention, PrefillAttention, RowsAttention
from speechmill.models.common.decode_attention import wanted
from speechmill.models.common.draws import CounterDraws, Draws
from speechmill.models.common.engine.graph import FrameGraph
from speechmill.models.common.engine.held import Held
from speechmill.models.common.engine.model import NO_VECTORS, Columns, FrameModel, FrameRows, Memory, Vectors
from speechmill.models.common.paged_kv import SCRAP, PagedKv

MakeDraws = Callable[[Tensor, Tensor], Draws]
"""From keys and frame numbers [rows] to the draws of a step."""


@dataclass(slots=True)
class _Slots:
    """A row for each slot, and one more that fills fixed shapes."""

    columns: Tensor
    positions: Tensor
    frames: Tensor
    keys: Tensor
    beside: Tensor
    """The second track, at rest beyond its end: int64 [slots + 1, longest + 1]."""
    settings: Tensor
    memory: Memory
    tables: Tensor
    """Pages, int64 [slots + 1, pages of the longest sequence]."""


class Runner:
    """On a GPU a step has the same shapes whatever is in it: results do not depend on neighbours, and a graph fits."""

    def __init__(
        self, model: FrameModel, cache: PagedKv, slots: int, chunk: int, draws: MakeDraws = CounterDraws
    ) -> None:
        """`chunk`: columns that one prefill takes at most."""
        self._model, self._cache = model, cache
        self._spare = slots
        self._chunk = chunk
        self._draws = draws
        self._device = model.kv.device
        self._fixed = self._device.type == "cuda"
        self._kernel = wanted(self._device)
        self._slots = self._empty(slots + 1)
        self._graph: FrameGraph | None = None

    def _empty(self, rows: int) -> _Slots:
        model = self._model

        def zeros(*shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
            return torch.zeros(rows, *shape, dtype=dtype, device=self._device)

        none = np.empty((0, model.codes), np.uint16)
        return _Slots(
            columns=zeros(model.width),
            positions=zeros(),
            frames=zeros(),
            keys=zeros(),
            beside=zeros(model.beside + 1),
            settings=torch.ones(rows, model.settings, device=self._device),
            memory=tuple(part.to(self._device).repeat(rows, *[1] * (part.ndim - 1)) for part in model.memory(none)),
            tables=torch.full((rows, self._cache.pages_for(model.positions)), SCRAP, device=self._device),
        )

    def capture(self) -> None:
        """Record the frame step as a CUDA graph, where there is a GPU and a kernel that a graph can hold."""
        if self._fixed and self._kernel:
            self._graph = FrameGraph(self._step_on_device, self._spare, self._device)

    def set_pages(self, slot: int, pages: Sequence[int]) -> None:
        self._slots.tables[slot, : len(pages)] = torch.tensor(pages, device=self._device)

    def set_beside(self, slot: int, beside: Sequence[int], start: int = 0) -> None:
        """Entries of a seated sequence's second track, from number `start` on."""
        self._slots.beside[slot, start : start + len(beside)] = torch.tensor(
            beside, dtype=torch.int64, device=self._device
        )

    def seat(self, held: Held) -> None:
        """Make the slot's row that of a sequence about to make its next frame."""
        slots, slot, made = self._slots, held.slot, held.made(self._model)
        slots.columns[slot] = torch.from_numpy(held.columns(self._model)[:, -1].copy()).to(self._device)
        slots.positions[slot] = held.length - 1
        slots.frames[slot] = len(made)
        slots.keys[slot] = held.request.key
        slots.beside[slot] = held.request.rest
        self.set_beside(slot, held.request.beside)
        slots.settings[slot] = torch.tensor(held.request.settings, device=self._device)
        for part, value in zip(slots.memory, self._model.memory(made), strict=True):
            part[slot] = value[0].to(self._device)

    def prefill(self, pages: Sequence[int], columns: Columns, start: int, vectors: Vectors) -> None:
        """A prompt's columns [width, n] at `start` and after it, by tiles."""
        count = columns.shape[1]
        attend = PrefillAttention(self._cache, torch.tensor(pages, device=self._device), start, count)
        self._model.prefill(*self._rows(columns, start, self._chunk), attend, self._on_device(vectors))

    def replay(self, slot: int, columns: Columns, start: int) -> None:
        """Columns of frames that were made before, in just the way in which they were computed then."""
        room = self._spare if self._fixed else columns.shape[1]
        for first in range(0, columns.shape[1], room):
            part, begin = columns[:, first : first + room], start + first
            lengths = [begin + place + 1 for place in range(part.shape[1])]
            attend = self._attend([slot] * len(lengths), lengths)
            self._model.prefill(*self._rows(part, begin, room), attend, self._on_device(NO_VECTORS))

    def _on_device(self, vectors: Vectors) -> Tensor:
        return torch.from_numpy(vectors).to(self._device)

    def _rows(self, columns: Columns, start: int, room: int) -> tuple[Tensor, Tensor]:
        """Columns as rows with their positions, filled up to `room` where shapes are fixed."""
        rows = torch.from_numpy(columns.T.copy()).to(self._device)
        positions = torch.arange(start, start + len(rows), device=self._device)
        if self._fixed:
            padding = room - len(rows)
            return torch.cat([rows, rows[:1].expand(padding, -1)]), torch.cat([positions, positions.new_zeros(padding)])
        return rows, positions

    def _attend(self, slots: Sequence[int], lengths: Sequence[int]) -> Attend:
        """For one row of each of `slots`, and those that fill a fixed shape."""
        padding = self._spare - len(slots) if self._fixed else 0
        tables, lengths = self._slots.tables[self._index(slots)], [*lengths, *[1] * padding]
        if self._kernel:
            return KernelAttention(self._cache, tables, torch.tensor(lengths, device=self._device))
        return RowsAttention(self._cache, tables, lengths)

    def _index(self, slots: Sequence[int]) -> Tensor:
        padding = self._spare - len(slots) if self._fixed else 0
        return torch.tensor([*slots, *[self._spare] * padding], device=self._device)

    def frame(self, slots: Sequence[int], lengths: Sequence[int]) -> list[list[int]]:
        """One frame of each slot: whether it ended (0 or 1) and its codes. `lengths`: columns of each."""
        index = self._index(slots)
        made = self._graph(index) if self._graph is not None else self._step(index, self._attend(slots, lengths))
        answer: list[list[int]] = made[: len(slots)].tolist()  # the one time that the host waits for the device
        return answer

    def _step_on_device(self, index: Tensor) -> Tensor:
        """The step as a graph records it: nothing in it comes from the host."""
        tables, positions = self._slots.tables[index], self._slots.positions[index]
        return self._step(index, KernelAttention(self._cache, tables, positions + 1))

    def _step(self, index: Tensor, attend: Attend) -> Tensor:
        """[rows, 1 + codes]; the slots are left ready for the next frame."""
        slots = self._slots
        frames = slots.frames[index]
        rows = FrameRows(
            columns=slots.columns[index],
            positions=slots.positions[index],
            frames=frames,
            beside=slots.beside[index, frames.clamp(max=self._model.beside)],
            settings=slots.settings[index],
            memory=tuple(part[index] for part in slots.memory),
            draws=self._draws(slots.keys[index], frames),
        )
        made = self._model.frame(rows, attend)
        slots.columns[index] = made.columns
        slots.positions[index] = rows.positions + 1
        slots.frames[index] = frames + 1
        for part, value in zip(slots.memory, made.memory, strict=True):
            part[index] = value
        slots.positions[self._spare] = 0
        return torch.cat([made.ended[:, None].long(), made.codes], dim=1)
