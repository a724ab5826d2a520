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
from speechmill.models.common.engine.model import Columns, FrameModel, FrameRows, Memory
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

    def seat(self, held: Held) -> None:
        """Make the slot's row that of a sequence about to make its next frame."""
        slots, slot, made = self._slots, held.slot, held.made(self._model)
        slots.columns[slot] = torch.from_numpy(held.columns(self._model)[:, -1].copy()).to(self._device)
        slots.positions[slot] = held.length - 1
        slots.frames[slot] = len(made)
        slots.keys[slot] = held.request.key
        slots.settings[slot] = torch.tensor(held.request.settings, device=self._device)
        for part, value in zip(slots.memory, self._model.memory(made), strict=True):
            part[slot] = value[0].to(self._device)

    def prefill(self, pages: Sequence[int], columns: Columns, start: int) -> None:
        """A prompt's columns [width, n] at `start` and after it, by tiles."""
        count = columns.shape[1]
        attend = PrefillAttention(self._cache, torch.tensor(pages, device=self._device), start, count)
        self._model.prefill(*self._rows(columns, start, self._chunk), attend)

    def replay(self, pages: Sequence[int], columns: Columns, start: int) -> None:
        """Columns of frames that were made before, in just the way in which they were computed then."""
        count = columns.shape[1]
        room = self._spare if self._fixed else count
        table = torch.tensor(pages, device=self._device)
        for first in range(0, count, room):
            part = columns[:, first : first + room]
            size = part.shape[1]
            padding = room - size
            tables = torch.cat([table.expand(size, -1), torch.full((padding, len(pages)), SCRAP, device=self._device)])
            lengths = [*range(start + first + 1, start + first + size + 1), *[1] * padding]
            rows, positions = self._rows(part, start + first, room)
            self._model.prefill(rows, positions, self._attend(tables, lengths))

    def _rows(self, columns: Columns, start: int, room: int) -> tuple[Tensor, Tensor]:
        """Columns as rows with their positions, filled up to `room` where shapes are fixed."""
        rows = torch.from_numpy(columns.T.copy()).to(self._device)
        positions = torch.arange(start, start + len(rows), device=self._device)
        if self._fixed:
            padding = room - len(rows)
            return torch.cat([rows, rows[:1].expand(padding, -1)]), torch.cat([positions, positions.new_zeros(padding)])
        return rows, positions

    def _attend(self, tables: Tensor, lengths: Sequence[int]) -> Attend:
        if self._kernel:
            return KernelAttention(self._cache, tables, torch.tensor(lengths, device=self._device))
        return RowsAttention(self._cache, tables, lengths)

    def frame(self, slots: Sequence[int], lengths: Sequence[int]) -> list[list[int]]:
        """One frame of each slot: whether it ended (0 or 1) and its codes. `lengths`: columns of each."""
        padding = self._spare - len(slots) if self._fixed else 0
        index = torch.tensor([*slots, *[self._spare] * padding], device=self._device)
        if self._graph is not None:
            made = self._graph(index)
        elif self._kernel:
            made = self._step_on_device(index)
        else:
            made = self._step(index, RowsAttention(self._cache, self._slots.tables[index], [*lengths, *[1] * padding]))
        answer: list[list[int]] = made[: len(slots)].tolist()  # the one time that the host waits for the device
        return answer

    def _step_on_device(self, index: Tensor) -> Tensor:
        tables, positions = self._slots.tables[index], self._slots.positions[index]
        return self._step(index, KernelAttention(self._cache, tables, positions + 1))

    def _step(self, index: Tensor, attend: Attend) -> Tensor:
        """[rows, 1 + codes]; the slots are left ready for the next frame."""
        slots = self._slots
        rows = FrameRows(
            columns=slots.columns[index],
            positions=slots.positions[index],
            frames=slots.frames[index],
            settings=slots.settings[index],
            memory=tuple(part[index] for part in slots.memory),
            draws=self._draws(slots.keys[index], slots.frames[index]),
        )
        made = self._model.frame(rows, attend)
        slots.columns[index] = made.columns
        slots.positions[index] = rows.positions + 1
        slots.frames[index] = rows.frames + 1
        for part, value in zip(slots.memory, made.memory, strict=True):
            part[index] = value
        slots.positions[self._spare] = 0
        return torch.cat([made.ended[:, None].long(), made.codes], dim=1)
