"""The writing side of a worker: appends emissions to logs, in order for each task, and settles what is finished.

Logs and records may lie on different servers, so the order is: append, seal, commit. Each may be repeated after a
crash by whoever claims the task next.
"""

import json
import logging
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from speechmill.infra import jobs
from speechmill.infra.client import UNAVAILABLE, Client
from speechmill.infra.keys import FILING_STAGES, Task
from speechmill.infra.messages import WordMark, problem
from speechmill.infra.protocol import Append, Call, advance, commit, emit, handback, seal
from speechmill.workers.finish import Joined
from speechmill.workers.work import Drop, Failed, Outcome, Work, Written

log = logging.getLogger(__name__)
RETRY_S = 0.2
"""Pause before an append that was refused for want of memory, or after the server went away, is sent again."""
BULK_LOGS_S = 2
"""Logs of bulk work stay no longer behind its end: tens of thousands of them would fill the memory, and who listens
late reads the result or what was spilled.
"""


@dataclass(slots=True)
class Hooks:
    """What the outlet tells others."""

    drop: Callable[[Drop], None]
    """The task is not ours any more."""
    done: Callable[[Work], None]
    """Nothing more will come from this task."""
    written: Callable[[Work], None]
    """Something was appended."""


@dataclass(slots=True)
class _Line:
    """One task's emissions, oldest first."""

    waiting: deque[Written] = field(default_factory=deque)
    appended: bool = False
    """The oldest is in the log already; what follows from it is not settled yet."""
    not_before: float = 0.0


class Outlet(threading.Thread):
    """One thread; each round takes at most one emission of every task and sends them in one pipeline."""

    def __init__(self, client: Client, worker: str, hooks: Hooks, logs_ttl_s: int) -> None:
        super().__init__(name="outlet", daemon=True)
        self._client = client
        self._worker = worker
        self._hooks = hooks
        self._logs_ttl_s = logs_ttl_s
        self._inbox: deque[Outcome] = deque()
        self._lines: dict[Work, _Line] = {}
        self._wake = threading.Event()
        self._stop = False

    def put(self, outcome: Outcome) -> None:
        self._inbox.append(outcome)
        self._wake.set()

    def idle(self) -> bool:
        return not self._inbox and not self._lines

    def stop(self) -> None:
        self._stop = True
        self._wake.set()

    def run(self) -> None:
        while not self._stop:
            self._wake.clear()
            try:
                moved = self._round()
            except UNAVAILABLE as error:
                log.warning("server away", extra={"error": str(error)})
                time.sleep(RETRY_S)
                continue
            if not moved and not self._inbox:
                self._wake.wait(RETRY_S if self._lines else 1.0)

    def _round(self) -> bool:
        """One pass over everything that waits. True when something moved."""
        self._sort_inbox()
        due = self._due()
        if not due:
            return False
        appends = [(work, item) for work, item in due if item.emission.frames and not self._lines[work].appended]
        answers = dict(zip([work for work, _ in appends], self._append(appends), strict=True))
        moved = False
        for work, item in due:
            answer = answers.get(work, "ok")
            if answer == "ok":
                self._note_append(work, item)
                self._follow_up(work, item)
                moved = True
            elif answer == "full":
                self._lines[work].not_before = time.monotonic() + RETRY_S
            else:
                self._let_go(work, answer)
        return moved

    def _due(self) -> list[tuple[Work, Written]]:
        """The oldest emission of each task, unless it must wait: for memory, or for what it was made from."""
        now, due = time.monotonic(), []
        for work, line in list(self._lines.items()):
            if work.gone:  # dropped by another thread: whoever claims it next goes on from the log
                del self._lines[work]
                continue
            item = line.waiting[0]
            producer, position = item.needs or (work, 0)
            if producer.end < position and producer.gone:
                self._let_go(work, "its input was not appended")
            elif producer.end >= position and line.not_before <= now:
                due.append((work, item))
        return due

    def _sort_inbox(self) -> None:
        while self._inbox:
            outcome = self._inbox[0]
            if isinstance(outcome, Failed):
                self._failed(outcome)
            elif not outcome.work.gone:
                self._lines.setdefault(outcome.work, _Line()).waiting.append(outcome)
            self._inbox.popleft()

    def _append(self, items: list[tuple[Work, Written]]) -> list[str]:
        calls: list[Call[str]] = []
        for work, item in items:
            emission = item.emission
            assert work.log is not None
            append = Append(
                start=work.end,
                end=work.end + emission.frames,
                crc=zlib.crc32(emission.payload, work.crc),
                payload=emission.payload,
                marks=tuple(WordMark(mark.word, mark.start, mark.end) for mark in emission.marks),
                cursor=emission.cursor,
                urgent=work.urgent,
                known_to=self._worker if item.handed_over else "",
            )
            calls.append(emit(work.log, work.claim.token, append, work.claim.ttl_s))
        return self._client.run_all(calls) if calls else []

    def _note_append(self, work: Work, item: Written) -> None:
        line = self._lines[work]
        if not line.appended:
            line.appended = True
            work.end += item.emission.frames
            work.crc = zlib.crc32(item.emission.payload, work.crc)

    def _follow_up(self, work: Work, item: Written) -> None:
        """What an appended emission brings about. May be interrupted by a lost server and is then done again."""
        emission = item.emission
        if isinstance(emission, Joined) and not self._advanced(work, emission):
            return
        if emission.final and not self._finished(work, json.dumps(dict(emission.trailer), ensure_ascii=False)):
            return
        work.pending -= 1
        line = self._lines[work]
        line.waiting.popleft()
        line.appended = False
        if not line.waiting:
            del self._lines[work]
        work.sealed = emission.final
        self._hooks.written(work)
        if emission.final:
            self._close(work)

    def _advanced(self, work: Work, emission: Joined) -> bool:
        """Tell how far `finish` is, and that there is audio; PCM of joined segments has served."""
        is_first = work.end == emission.frames > 0
        if emission.joined == work.joined and not is_first:
            return True
        answer = self._client.run(advance(work.task, work.claim.token, emission.joined, work.end))
        if answer not in ("ok", "done"):
            self._let_go(work, answer)
            return False
        job, take, stages = work.task.job, work.task.take, work.claim.stages
        spent = [Task(job, take, segment, stages[-1]) for segment in range(work.joined, emission.joined)]
        self._client.run_all(jobs.retirement(spent, stages, 0))
        work.joined = emission.joined
        return True

    def _finished(self, work: Work, trailer: str) -> bool:
        token = work.claim.token
        if work.log is not None:
            answer = self._client.run(seal(work.log, token, trailer, work.end))
            if answer == "ok":
                answer = self._client.run(commit(work.task, token))
        else:
            answer = self._client.run(commit(work.task, token, trailer))
        if answer != "ok":
            self._let_go(work, answer)
        return answer == "ok"

    def _close(self, work: Work) -> None:
        work.gone = True
        self._hooks.done(work)
        if work.task.stage in FILING_STAGES:
            tasks = jobs.read_tasks(self._client, work.task.job)
            ttl_s = BULK_LOGS_S if work.claim.job_class == "batch" and not work.claim.live else self._logs_ttl_s
            self._client.run_all(jobs.retirement(tasks, work.claim.stages, ttl_s))
        log.info("done", extra={"job": work.task.job, "segment": work.task.segment, "stage": work.task.stage})

    def _let_go(self, work: Work, answer: str, reason: str = "") -> None:
        """The log or the lease is not ours any more, or the job has ended: give the task back and forget it."""
        self._client.run(handback(work.task, work.claim.token, reason))
        work.gone = True
        self._lines.pop(work, None)
        self._hooks.drop(Drop(work))
        self._hooks.done(work)
        log.info("let go", extra={"job": work.task.job, "stage": work.task.stage, "why": answer})

    def _failed(self, failed: Failed) -> None:
        work = failed.work
        if work.gone:
            return
        extra = {"job": work.task.job, "stage": work.task.stage, "code": failed.code, "fatal": failed.fatal}
        log.warning("failed", extra=extra)
        reason = problem(failed.code, failed.message) if failed.code else ""
        if failed.fatal:
            jobs.end(self._client, work.task.job, "failed", reason, self._logs_ttl_s)
            reason = ""
        self._let_go(work, "failed", reason)
        if reason:
            jobs.settle(self._client, work.task.job, self._logs_ttl_s)
