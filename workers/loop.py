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
from dataclasses import replace

from speechmill.configs.settings import Scheduling
from speechmill.models.stage import Chunk, Emission, SlotFailed
from speechmill.workers.batcher import pick
from speechmill.workers.opening import stage_task
from speechmill.workers.runner import MAX_WAITING, Runner
from speechmill.workers.urgency import slack_s
from speechmill.workers.work import Event, Failed, Feed, Open, Outcome, Work, Written

log = logging.getLogger(__name__)
IDLE_S = 0.25


class DeviceLost(Exception):
    """A GPU answers every further call of this process with the same error: only a new process can go on."""


class Loop:
    """Applies events, then makes the step that is needed most; over and over."""

    def __init__(
        self,
        runners: list[Runner],
        outcome: Callable[[Outcome], None],
        scheduling: Scheduling = "deadline",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`runners`: the stages of a model in their order."""
        self.runners = {runner.pool: runner for runner in runners}
        self._scheduling: Scheduling = scheduling
        self._clock = clock
        self._order = list(reversed(runners))
        self._outcome = outcome
        self._events: deque[Event] = deque()
        self._wake = threading.Event()
        self._stop = False
        self.stamp = time.monotonic()
        """When the loop last moved: a stuck step stops stamping, and its leases lapse."""
        self.freed: Callable[[str], None] = lambda pool: None
        """Told the pool in which a slot became free."""
        self.hand_over: Callable[[Work, Chunk], bool] = lambda work, chunk: False
        """Takes what was made to a follower in this process, ahead of the log; says whether there is one."""

    def put(self, event: Event) -> None:
        self._events.append(event)
        self._wake.set()

    def wake(self) -> None:
        self._wake.set()

    def stop(self) -> None:
        self._stop = True
        self._wake.set()

    def run(self) -> None:
        """Until `stop`. Raises DeviceLost."""
        while not self._stop:
            self._wake.clear()
            has_stepped = self.turn()
            self.stamp = time.monotonic()
            if not has_stepped:
                self._wake.wait(max(min([IDLE_S, *(runner.due_s() for runner in self._order)]), 0))
        for runner in self._order:
            for work in list(runner.works.values()):
                runner.unseat(work)

    def turn(self) -> bool:
        """Apply what has come, then make one step, if any can be made; says whether one was."""
        self._apply_events()
        wanted = [runner.wanted for runner in self._order]
        chosen = pick(self._order, self._clock(), self._scheduling)
        for runner, before in zip(self._order, wanted, strict=True):
            if runner.waiting < MAX_WAITING and runner.wanted != before:
                self.freed(runner.pool)
        if chosen is not None:
            self._step(*chosen)
        return chosen is not None

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
            self.freed(runner.pool)
            return
        slot = runner.seat(work)
        work.made = event.resume.end
        with self._blamed(runner, work):
            runner.stage.open(slot, stage_task(work.claim, event.assets, work.history), event.resume)

    def _feed(self, runner: Runner, event: Feed) -> None:
        if event.work.slot >= 0:
            event.work.trailer = event.chunk.trailer
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

    def _step(self, runner: Runner, batch: list[Work]) -> None:
        began = self._clock()
        for work in batch:
            work.begun = True
        try:
            emissions = runner.stage.step([work.slot for work in batch])
        except SlotFailed as failure:
            self._isolate(runner, batch, failure)
        except Exception as failure:
            _report(failure, runner, batch)
            for work in batch:
                self._fail(runner, work, "generation_failed", type(failure).__name__, fatal=False)
        else:
            for emission in emissions:
                self._emit(runner, emission)
            made_s = sum(emission.frames for emission in emissions) / runner.card.rate
            ended = self._clock()
            runner.pace.note(len(batch), ended - began, made_s, idle_s=began - runner.stepped)
            runner.stepped = ended

    def _isolate(self, runner: Runner, batch: list[Work], failure: SlotFailed) -> None:
        """One slot failed; what the step made of the others is unknown, so they go on from their logs."""
        for work in batch:
            if work.slot == failure.slot:
                self._fail(runner, work, failure.code, str(failure), fatal=True)
            else:
                self._fail(runner, work, "", "", fatal=False)

    def _emit(self, runner: Runner, emission: Emission) -> None:
        work = runner.works[emission.slot]
        start = work.made
        self._note_listener(runner, work, emission)
        work.made += emission.frames
        work.last_made = time.monotonic()
        work.pending += 1
        if emission.final:
            emission = replace(emission, trailer={**work.trailer, **emission.trailer})
            self._leave(runner, work)
        chunk = Chunk(start, work.made, emission.payload, emission.marks)
        handed_over = emission.frames > 0 and self.hand_over(work, chunk)
        self._outcome(Written(work, emission, work.fed, handed_over))

    def _note_listener(self, runner: Runner, work: Work, emission: Emission) -> None:
        """Who ran dry plays on from here; who gets the first audio of all begins now, or soon."""
        now = self._clock()
        if work.playing_since is not None:
            work.stalled_s = work.still_s - min(slack_s(work, runner.card.rate, now), 0.0)
        elif not work.urgent or work.made or not emission.frames:
            return
        elif runner.card.unit != "pcm":
            work.sent = now
        else:
            for other in (other for runner in self._order for other in runner.works.values()):
                if other.task.job == work.task.job:
                    other.playing_since = now

    def _fail(self, runner: Runner, work: Work, code: str, message: str, fatal: bool) -> None:
        self._leave(runner, work)
        self._outcome(Failed(work, code, message, fatal))

    def _leave(self, runner: Runner, work: Work) -> None:
        if work.slot < 0:
            return
        was_crowded = runner.crowded
        runner.unseat(work)
        if was_crowded or runner.taken == 0:  # else the intake watches all queues anyhow, and no suspect can start
            self.freed(runner.pool)


def _report(failure: Exception, runner: Runner, works: list[Work]) -> None:
    """Where it went wrong, without the exception's own words: they may quote what a user wrote. Raises DeviceLost."""
    where = "".join(traceback.format_tb(failure.__traceback__))
    extra = {"pool": runner.pool, "jobs": [work.task.job for work in works]}
    log.error("stage failed", extra={**extra, "error": type(failure).__name__, "trace": where})
    if type(failure).__name__ == "AcceleratorError":  # PyTorch's, which is not imported here
        raise DeviceLost from failure
