"""One stage in one process, and the works in its slots."""

import threading
from collections.abc import Callable

from speechmill.models.card import StageCard
from speechmill.models.stage import Stage
from speechmill.workers.work import Work

MAX_PENDING = 8
"""Emissions of one task that may wait for the outlet before its slot rests."""


class Runner:
    """A stage with its batch. `light`: a step costs next to nothing, as those of the farm's own stages do."""

    def __init__(self, pool: str, card: StageCard, stage: Stage, slots: int, light: bool = False) -> None:
        self.pool = pool
        self.card = card
        self.stage = stage
        self.slots = slots
        self.light = light
        self.works: dict[int, Work] = {}
        self._free = list(range(slots))
        self._taken = 0
        self._lock = threading.Lock()

    def reserve(self) -> bool:
        """Take a place for a task about to be claimed (intake). False when the batch is full."""
        with self._lock:
            if self._taken >= self.slots:
                return False
            self._taken += 1
            return True

    def unreserve(self) -> None:
        with self._lock:
            self._taken -= 1

    @property
    def taken(self) -> int:
        return self._taken

    def seat(self, work: Work) -> int:
        work.slot = self._free.pop()
        self.works[work.slot] = work
        return work.slot

    def unseat(self, work: Work) -> None:
        """Free the work's slot, if it has one."""
        if work.slot >= 0:
            self.stage.close(work.slot)
            del self.works[work.slot]
            self._free.append(work.slot)
            work.slot = -1
            self.unreserve()

    def due_s(self) -> float:
        """Seconds until the clock makes a work able; infinite for every stage that keeps no pace of its own."""
        due_s: Callable[[], float] | None = getattr(self.stage, "due_s", None)
        return due_s() if due_s is not None else float("inf")

    def able(self) -> list[Work]:
        """Works that a step would bring on, and whose last emissions are not waiting in a heap."""
        runnable = self.stage.runnable
        return [work for slot, work in self.works.items() if work.pending < MAX_PENDING and runnable(slot)]
