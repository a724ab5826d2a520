"""One stage in one process, and the works in its slots."""

import threading
from collections.abc import Callable
from typing import Literal

from speechmill.models.card import StageCard
from speechmill.models.stage import Stage
from speechmill.workers.pace import Pace
from speechmill.workers.work import Work

Wanted = Literal["any", "interactive", "unheard", "ongoing"]
"""Whom a free place is for: any task, those of one class, those that nobody waits to hear begin, or none; and always
those that go on with a job that somebody hears.
"""
MAX_PENDING = 8
"""Emissions of one task that may wait for the outlet before its slot rests."""
MAX_WAITING = 2
"""Streams that may wait in their slots to be begun; more stay in the queue, where other workers find them."""
SPARE_SHARE = 16
"""One place of so many is kept for the interactive class, whose first sound shall not wait for others to end."""


class Runner:
    """A stage with its batch. `light`: a step costs next to nothing, as those of the farm's own stages do."""

    def __init__(self, pool: str, card: StageCard, stage: Stage, slots: int, light: bool = False) -> None:
        self.pool = pool
        self.card = card
        self.stage = stage
        self.slots = slots
        self.light = light
        self.pace = Pace()
        self.works: dict[int, Work] = {}
        self.waiting = 0
        """Streams that could begin and for which there is no room yet (compute)."""
        self.stepped = 0.0
        """When its last step ended, by the loop's clock (compute)."""
        self._free = list(range(slots))
        self._taken = 0
        self._lock = threading.Lock()

    @property
    def model(self) -> str:
        return self.pool.rpartition("/")[0]

    @property
    def limit(self) -> int:
        """Slots that a step takes at most."""
        return self.card.batch or self.slots

    def reserve(self) -> Wanted | None:
        """Take a place for a task about to be claimed (intake). None when the batch is full."""
        with self._lock:
            if self._taken >= self.slots:
                return None
            wanted = self.wanted
            self._taken += 1
            return wanted

    @property
    def wanted(self) -> Wanted:
        """Whom the next free place is for."""
        if self.waiting >= MAX_WAITING:
            return "ongoing" if self.crowded else "unheard"
        return "interactive" if self.crowded else "any"

    def unreserve(self) -> None:
        with self._lock:
            self._taken -= 1

    @property
    def taken(self) -> int:
        return self._taken

    @property
    def crowded(self) -> bool:
        """Whether all places but those for the interactive class are taken."""
        return self._taken >= self.slots - self.slots // SPARE_SHARE

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

    def hurry(self, is_due: Callable[[Work, "Runner"], bool]) -> None:
        """Have short pieces made of what is there where they are due and the stage would wait for more."""
        hurry: Callable[[int], None] | None = getattr(self.stage, "hurry", None)
        if hurry is not None:
            for slot, work in self.works.items():
                if is_due(work, self):
                    hurry(slot)

    def able(self) -> list[Work]:
        """Works that a step would bring on, and whose last emissions are not waiting in a heap.

        A suspect runs alone, after the others.
        """
        runnable = self.stage.runnable
        able = [work for slot, work in self.works.items() if work.pending < MAX_PENDING and runnable(slot)]
        return [work for work in able if not work.claim.solo] or able[:1]
