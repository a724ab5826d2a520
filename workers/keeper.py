"""The clockwork of a worker: renews leases while the loop moves, reports that it lives, reaps what others lost."""

import json
import logging
import resource
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from speechmill.infra import jobs
from speechmill.infra.client import UNAVAILABLE, Client
from speechmill.infra.protocol import beat, leave, press, reap, renew
from speechmill.workers.intake import Intake
from speechmill.workers.loop import Loop

log = logging.getLogger(__name__)
TICK_S = 0.5
LAPSE_MS = 6000
"""A worker that has not reported for so long does not count as alive."""
PRESSURE_S = 3


@dataclass(frozen=True, slots=True)
class Habits:
    """What the keeper keeps to."""

    lease_s: float
    stuck_step_s: float
    memory_mark: float
    logs_ttl_s: int
    max_rss_mb: int


class Keeper(threading.Thread):
    """One thread; whatever it misses while a server is away it makes up for at the next tick."""

    def __init__(self, client: Client, loop: Loop, intake: Intake, worker: str, habits: Habits) -> None:
        super().__init__(name="keeper", daemon=True)
        self._client = client
        self._loop = loop
        self._intake = intake
        self._worker = worker
        self._habits = habits
        self._pools = [(runner.pool, runner.slots) for runner in loop.runners.values()]
        self._end = threading.Event()
        self.too_big: Callable[[], None] = lambda: None
        """Told once when the process has outgrown its memory limit."""
        self.memory_short: Callable[[bool], None] = lambda short: None
        """Told every second whether a server has little memory left."""

    def stop(self) -> None:
        """Stop and sign off."""
        self._end.set()
        self.join(timeout=5)
        try:
            self._client.run(leave(self._worker, [pool for pool, _ in self._pools]))
        except UNAVAILABLE:
            log.warning("server away")

    def run(self) -> None:
        duties = ((self._beat, 1.0), (self._renew, self._habits.lease_s / 5), (self._reap, 1.0), (self._measure, 1.0))
        due = [0.0] * len(duties)
        while not self._end.is_set():
            try:
                for index, (duty, every_s) in enumerate(duties):
                    if time.monotonic() >= due[index]:
                        duty()
                        due[index] = time.monotonic() + every_s
            except UNAVAILABLE as error:
                log.warning("server away", extra={"error": str(error)})
            self._end.wait(TICK_S)

    def _beat(self) -> None:
        report = json.dumps({"taken": {runner.pool: runner.taken for runner in self._loop.runners.values()}})
        self._client.run(beat(self._worker, report, LAPSE_MS, self._pools))

    def _renew(self) -> None:
        held = self._intake.held()
        if not held or time.monotonic() - self._loop.stamp > self._habits.stuck_step_s:
            return
        lease_ms = int(self._habits.lease_s * 1000)
        answers = self._client.run(renew(lease_ms, [(work.task, work.claim.token, work.position) for work in held]))
        for work, answer in zip(held, answers, strict=True):
            if answer.verdict in ("fenced", "closed") and not work.gone:
                self._intake.drop(work, answer.verdict)
            else:
                work.hear(answer.heard)

    def _reap(self) -> None:
        for job in self._client.run(reap()):
            log.warning("job ended by the reaper", extra={"job": job})
            jobs.settle(self._client, job, self._habits.logs_ttl_s)

    def _measure(self) -> None:
        """Memory, of the servers and of this process."""
        short = False
        for role, server in self._client.servers():
            info = server.info("memory")
            limit = int(info["maxmemory"])
            if limit and int(info["used_memory"]) > limit * self._habits.memory_mark:
                self._client.run(press(PRESSURE_S, role))
                short = True
        self.memory_short(short)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20 if sys.platform == "darwin" else 1 << 10)
        if self._habits.max_rss_mb and peak > self._habits.max_rss_mb:
            log.warning("outgrown", extra={"rss_mb": round(peak), "limit_mb": self._habits.max_rss_mb})
            self._habits = replace(self._habits, max_rss_mb=0)
            self.too_big()
