"""The compute side of a worker: drives the steppers of every stage in this process. It does no I/O.

Events come in from the intake, outcomes go out to the outlet, both through queues; this is the only thread that
touches a stage.
"""

import logging
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from speechmill.models.card import StageCard
from speechmill.models.stage import Emission, SlotFailed, Stage
from speechmill.workers.batcher import choose
from speechmill.workers.opening import stage_task
from speechmill.workers.work import Event, Failed, Feed, Open, Outcome, Work, Written

log = logging.getLogger(__name__)
MAX_PENDING = 8
"""Emissions of one task that may wait for the outlet before its slot rests."""


class Runner:
    """One stage in this process, and the works in its slots."""

    def __init__(self, pool: str, card: StageCard, stage: Stage, slots: int) -> None:
        self.pool = pool
        self.card = card
        self.stage = stage
        self.slots = slots
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


class Loop:
    """Applies events, then steps every runner once, last stage first, so that sound leaves as early as it can."""

    def __init__(self, runners: list[Runner], outcome: Callable[[Outcome], None]) -> None:
        self.runners = {runner.pool: runner for runner in runners}
        self._order = list(reversed(runners))
        self._outcome = outcome
        self._events: deque[Event] = deque()
        self._wake = threading.Event()
        self._stop = False
        self.stamp = time.monotonic()
        """When the loop last moved: a stuck step stops stamping, and its leases lapse."""
        self.freed: Callable[[], None] = lambda: None
        """Told when a slot becomes free."""

    def put(self, event: Event) -> None:
        self._events.append(event)
        self._wake.set()

    def wake(self) -> None:
        self._wake.set()

    def stop(self) -> None:
        self._stop = True
        self._wake.set()

    def run(self) -> None:
        """Until `stop`."""
        while not self._stop:
            self._wake.clear()
            self._apply_events()
            stepped = [self._step(runner) for runner in self._order]
            self.stamp = time.monotonic()
            if not any(stepped):
                self._wake.wait(0.25)
        for runner in self._order:
            for work in list(runner.works.values()):
                runner.unseat(work)

    def _apply_events(self) -> None:
        while self._events:
            event = self._events.popleft()
            runner = self.runners[event.work.pool]
            if isinstance(event, Open):
                self._open(runner, event)
            elif isinstance(event, Feed):
                self._feed(runner, event)
            else:
                self._leave(runner, event.work)

    def _open(self, runner: Runner, event: Open) -> None:
        work = event.work
        if work.gone:
            runner.unreserve()
            return
        slot = runner.seat(work)
        work.made = event.resume.end
        with self._blamed(runner, work):
            runner.stage.open(slot, stage_task(work.claim), event.resume)

    def _feed(self, runner: Runner, event: Feed) -> None:
        if event.work.slot >= 0:
            with self._blamed(runner, event.work):
                runner.stage.feed(event.work.slot, event.chunk)

    @contextmanager
    def _blamed(self, runner: Runner, work: Work) -> Iterator[None]:
        """Whatever goes wrong inside is this task's own fault: a refusal ends its job, a crash counts as a try."""
        try:
            yield
        except SlotFailed as failure:
            self._fail(runner, work, failure.code, str(failure), fatal=True)
        except Exception as failure:
            _report(failure, runner, [work])
            self._fail(runner, work, "generation_failed", type(failure).__name__, fatal=False)

    def _step(self, runner: Runner) -> bool:
        """One batched step. True when there was something to step."""
        stage = runner.stage
        able = [work for slot, work in runner.works.items() if work.pending < MAX_PENDING and stage.runnable(slot)]
        if not able:
            return False
        batch = choose(able, runner.card.rate, runner.card.batch or runner.slots)
        try:
            emissions = stage.step([work.slot for work in batch])
        except SlotFailed as failure:
            self._isolate(runner, batch, failure)
        except Exception as failure:
            _report(failure, runner, batch)
            for work in batch:
                self._fail(runner, work, "generation_failed", type(failure).__name__, fatal=False)
        else:
            for emission in emissions:
                self._emit(runner, emission)
        return True

    def _isolate(self, runner: Runner, batch: list[Work], failure: SlotFailed) -> None:
        """One slot failed; what the step made of the others is unknown, so they go on from their logs."""
        for work in batch:
            if work.slot == failure.slot:
                self._fail(runner, work, failure.code, str(failure), fatal=True)
            else:
                self._fail(runner, work, "", "", fatal=False)

    def _emit(self, runner: Runner, emission: Emission) -> None:
        work = runner.works[emission.slot]
        work.made += emission.frames
        work.pending += 1
        if emission.final:
            self._leave(runner, work)
        self._outcome(Written(work, emission))

    def _fail(self, runner: Runner, work: Work, code: str, message: str, fatal: bool) -> None:
        self._leave(runner, work)
        self._outcome(Failed(work, code, message, fatal))

    def _leave(self, runner: Runner, work: Work) -> None:
        if work.slot >= 0:
            runner.unseat(work)
            self.freed()


def _report(failure: Exception, runner: Runner, works: list[Work]) -> None:
    """Where it went wrong, without the exception's own words: they may quote what a user wrote."""
    where = "".join(traceback.format_tb(failure.__traceback__))
    extra = {"pool": runner.pool, "jobs": [work.task.job for work in works]}
    log.error("stage failed", extra={**extra, "error": type(failure).__name__, "trace": where})
