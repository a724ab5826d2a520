"""Keeps a running job's `out` log in memory no longer than the replay window: what is older goes to S3 first."""

import logging
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue

from speechmill.infra.client import UNAVAILABLE, Client
from speechmill.infra.errors import StoreUnavailable
from speechmill.infra.keys import LogRef
from speechmill.infra.protocol import Hole, LogReader, trim
from speechmill.infra.spill import Spill
from speechmill.workers.work import S16_BYTES, Work

log = logging.getLogger(__name__)
READ_COUNT = 64
RETRY_S = 1.0


class Spiller(threading.Thread):
    """One thread; a log is spilled one window at a time once it holds two."""

    def __init__(self, client: Client, spill: Spill, register: Callable[[str, float], None], window_s: float) -> None:
        super().__init__(name="spiller", daemon=True)
        self._client = client
        self._spill = spill
        self._register = register
        self._window_s = window_s
        self._first: dict[Work, int] = {}
        self._queue: SimpleQueue[Work | None] = SimpleQueue()

    def note(self, work: Work) -> None:
        """Something was appended to the work's log (outlet)."""
        if work.log is None or work.task.stage != "finish":
            return
        first = self._first.setdefault(work, 0)
        if work.end - first > 2 * self._window_s * work.claim.request.sample_rate:
            self._first[work] = work.end - self._window(work)
            self._queue.put(work)

    def forget(self, work: Work) -> None:
        self._first.pop(work, None)

    def stop(self) -> None:
        self._queue.put(None)

    def run(self) -> None:
        while (work := self._queue.get()) is not None:
            assert work.log is not None
            try:
                self._move(work, work.log)
            except (StoreUnavailable, *UNAVAILABLE) as error:
                log.warning("not spilled", extra={"job": work.task.job, "error": str(error)})
                self._first[work] = 0  # the next append tries again, from wherever the log begins
                self._pause()

    def _pause(self) -> None:
        time.sleep(RETRY_S)
        while True:
            try:
                self._queue.get_nowait()
            except Empty:
                return

    def _window(self, work: Work) -> int:
        return int(self._window_s * work.claim.request.sample_rate)

    def _move(self, work: Work, source: LogRef) -> None:
        raw = self._client.server(source.on).hget(self._client.keys.log_meta(source), "first")
        first, upto = int(raw or 0), work.end - self._window(work)
        reader = LogReader(first, S16_BYTES * work.claim.request.channels)
        parts: list[bytes] = []
        try:
            while reader.position < upto and (entries := self._client.read_log(source, reader.entry, READ_COUNT)):
                parts += [chunk.payload for chunk in reader.entries(entries)]
        except Hole:
            return
        if not parts or reader.ended:
            return
        request = work.claim.request
        key = self._spill.key(source, first, reader.position)
        self._register(key, time.time() + work.claim.ttl_s + request.keep_s)
        self._spill.write(source, first, reader.position, b"".join(parts))
        self._client.run(trim(source, reader.position))
        log.info("spilled", extra={"job": work.task.job, "start": first, "end": reader.position})
