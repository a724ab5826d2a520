"""Keeps a running job's `out` log in memory no longer than the replay window: what is older goes to S3 first."""

import logging
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue

from speechmill.infra.client import UNAVAILABLE, Client
from speechmill.infra.errors import StoreUnavailable
from speechmill.infra.keys import LogRef
from speechmill.infra.messages import LogChunk
from speechmill.infra.protocol import Hole, LogReader, trim
from speechmill.infra.spill import MARKS, Spill
from speechmill.workers.work import S16_BYTES, Work

log = logging.getLogger(__name__)
READ_COUNT = 64
RETRY_S = 1.0
SHORT_WINDOW_S = 5.0
"""Kept in memory of a running job's audio while memory is short."""


class Spiller(threading.Thread):
    """One thread; a log is spilled one window at a time once it holds two."""

    def __init__(self, client: Client, spill: Spill, register: Callable[[str, float], None], window_s: float) -> None:
        super().__init__(name="spiller", daemon=True)
        self._client = client
        self._spill = spill
        self._register = register
        self._window_s = window_s
        self._memory_short = False
        self._first: dict[Work, int] = {}
        self._queue: SimpleQueue[Work | None] = SimpleQueue()

    def memory_short(self, short: bool) -> None:
        """While it is, logs are moved out early (keeper)."""
        self._memory_short = short

    def note(self, work: Work) -> None:
        """Something was appended to the work's log (outlet)."""
        if work.log is None or work.task.stage != "finish" or work.sealed:
            return
        if work not in self._first:  # some were dropped without a word
            self._first = {other: first for other, first in self._first.items() if not other.gone}
        first = self._first.setdefault(work, 0)
        if work.end - first > 2 * self._window(work):
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
                if work in self._first:
                    self._first[work] = 0  # the next append tries again, from wherever the log begins
                self._pause()

    def _pause(self) -> None:
        time.sleep(RETRY_S)
        while True:
            try:
                if self._queue.get_nowait() is None:
                    self._queue.put(None)
                    return
            except Empty:
                return

    def _window(self, work: Work) -> int:
        window_s = min(self._window_s, SHORT_WINDOW_S) if self._memory_short else self._window_s
        return int(window_s * work.claim.request.sample_rate)

    def _move(self, work: Work, source: LogRef) -> None:
        raw = self._client.server(source.on).hget(self._client.keys.log_meta(source), "first")
        first, upto = int(raw or 0), work.end - self._window(work)
        reader = LogReader(first, S16_BYTES * work.claim.request.channels)
        chunks: list[LogChunk] = []
        try:
            while reader.position <= upto and (entries := self._client.read_log(source, reader.entry, READ_COUNT)):
                chunks += reader.entries(entries)
        except Hole:
            return
        chunks = [chunk for chunk in chunks if chunk.end <= upto and chunk.trailer is None]
        end = chunks[-1].end if chunks else first
        if end == first:
            return
        key = self._spill.key(source, first, end)
        for made in (key, key + MARKS):
            self._register(made, time.time() + work.claim.ttl_s + work.claim.request.keep_s)
        pcm = b"".join(chunk.payload for chunk in chunks)
        marks = tuple(mark for chunk in chunks for mark in chunk.marks)
        self._spill.write(source, first, end, pcm, marks)
        self._client.run(trim(source, end))
        log.info("spilled", extra={"job": work.task.job, "start": first, "end": end})
