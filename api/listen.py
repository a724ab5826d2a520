"""One inbox reader for each API process: hands chunks of `out` logs to the responses that wait for them.

Inbox entries are hints. A listener that meets a hole, or hears nothing for a second, reads the log itself; what has
left the log it reads from the spilled objects.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

from redis.exceptions import RedisError

from speechmill.api.errors import ApiError, from_job
from speechmill.infra.client import BLOCK_MS, UNAVAILABLE, AsyncClient, read_entries
from speechmill.infra.errors import StoreUnavailable
from speechmill.infra.jobs import TERMINAL, parse_record
from speechmill.infra.keys import LogRef, Task, new_id
from speechmill.infra.messages import LogChunk
from speechmill.infra.protocol import Hole, LogReader, follow, keep, poke, unfollow
from speechmill.infra.spill import Spill

log = logging.getLogger(__name__)
READ_COUNT = 32
SILENCE_S = 1.0
INBOX_TTL_S = 60
MAX_HINTS = 16
"""Hints that a listener holds; a slow one drops them and reads the log when it gets there."""
TOUCH_S = 20
KEEP_S = 60
"""A log that is being read is kept for so long after each touch."""
RETRY_S = 0.2


@dataclass(slots=True)
class _Hints:
    """What has come for one listener."""

    fields: list[dict[bytes, bytes]] = field(default_factory=list)
    missed: bool = False
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def put(self, fields: dict[bytes, bytes]) -> None:
        if len(self.fields) < MAX_HINTS:
            self.fields.append(fields)
        else:
            self.missed = True
        self.news.set()

    async def take(self, timeout_s: float) -> list[dict[bytes, bytes]]:
        """Raises TimeoutError after silence, Hole when some were dropped."""
        if not self.fields:
            await asyncio.wait_for(self.news.wait(), timeout_s)
        self.news.clear()
        taken, self.fields = self.fields, []
        if self.missed:
            self.missed = False
            raise Hole
        return taken


async def ended(task: "asyncio.Future[Any]") -> None:
    """Cancel a task, as often as it takes: redis-py swallows a cancellation that meets it at the wrong moment."""
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=0.1)
    if not task.cancelled():
        task.exception()  # nobody else asks for it


class Listening:
    """The process's inbox, and who listens to which log."""

    def __init__(self, client: AsyncClient, spill: Spill, threads: Executor) -> None:
        """`threads` wait for the object store."""
        self.client = client
        self.spill = spill
        self.threads = threads
        self.name = new_id("api")
        self.active = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._listeners: dict[str, list[_Hints]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [asyncio.create_task(duty()) for duty in (self._watch, self._keep_logs)]

    async def stop(self) -> None:
        for task in self._tasks:
            await ended(task)

    async def quiet(self, timeout_s: float) -> None:
        """Return when nobody listens any more, or after so long."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), timeout_s)

    async def _watch(self) -> None:
        inbox, seen = self.client.keys.inbox(self.name), ""
        server, now, touched = self.client.server("chunks"), asyncio.get_running_loop().time, 0.0
        while True:
            try:
                if not seen or now() - touched > INBOX_TTL_S / 4:
                    touched = now()
                    made = await self.client.run(poke(self.name, "", INBOX_TTL_S, "chunks"))
                    seen = seen or made
                reply = read_entries(await server.xread({inbox: seen}, count=256, block=BLOCK_MS))
                for entry, fields in reply.get(inbox.encode(), []):
                    seen = entry.decode()
                    for hints in self._listeners.get(fields.get(b"l", b"").decode(), []):
                        hints.put(fields)
            except RedisError as error:
                log.warning("server away", extra={"error": str(error)})
                seen = ""
                await asyncio.sleep(RETRY_S)

    async def _keep_logs(self) -> None:
        """Logs outlive their jobs for as long as somebody reads them, however slowly."""
        while True:
            await asyncio.sleep(TOUCH_S)
            for name in list(self._listeners):
                with contextlib.suppress(RedisError):
                    await self.client.run(keep(LogRef(Task.parse(name), "chunks"), KEEP_S))

    @contextlib.asynccontextmanager
    async def listen(self, source: LogRef, frame_bytes: int, ttl_s: int) -> AsyncIterator["Listener"]:
        """Register for a log, which need not exist yet."""
        hints = _Hints()
        self._listeners.setdefault(source.name, []).append(hints)
        self.active += 1
        self._idle.clear()
        try:
            await self.client.run(follow(source, self.name, ttl_s))
            yield Listener(self, source, hints, frame_bytes)
        finally:
            self.active -= 1
            if not self.active:
                self._idle.set()
            self._listeners[source.name].remove(hints)
            if not self._listeners[source.name]:
                del self._listeners[source.name]
                with contextlib.suppress(*UNAVAILABLE):
                    await asyncio.shield(self.client.run(unfollow(source, self.name)))


class Listener:
    """One reader of one `out` log, from position 0."""

    def __init__(self, listening: Listening, source: LogRef, hints: _Hints, frame_bytes: int) -> None:
        self._listening = listening
        self._client = listening.client
        self._source = source
        self._hints = hints
        self._reader = LogReader(0, frame_bytes)

    @property
    def position(self) -> int:
        """Frames taken so far."""
        return self._reader.position

    async def chunks(self) -> AsyncIterator[LogChunk]:
        """Chunks in order; the last is empty and carries the trailer. Raises ApiError when the job failed."""
        while not self._reader.ended:
            for chunk in await self._next():
                if chunk.trailer is not None and "error" in chunk.trailer:
                    raise from_job(chunk.trailer["error"], self._source.task.job)
                yield chunk

    async def _next(self) -> list[LogChunk]:
        """What comes next, if anything does for a while. Servers that are away cost time: what is missed is read."""
        chunks: list[LogChunk] = []
        try:
            for fields in await self._hints.take(SILENCE_S):
                chunks += self._reader.hint(fields)
            return chunks
        except Hole:
            return chunks + await self._read_or_wait(self._read)
        except TimeoutError:
            return await self._read_or_wait(self._read) or await self._read_or_wait(self._after_silence)

    async def _read_or_wait(self, read: Callable[[], Awaitable[list[LogChunk]]]) -> list[LogChunk]:
        try:
            return await read()
        except (StoreUnavailable, *UNAVAILABLE) as error:
            log.warning("server away", extra={"job": self._source.task.job, "error": str(error)})
            await asyncio.sleep(RETRY_S)
            return []

    async def _read(self) -> list[LogChunk]:
        entries = await self._client.read_log(self._source, self._reader.entry, READ_COUNT)
        if len(entries) >= READ_COUNT - 1:
            self._read_on()
        try:
            return self._reader.entries(entries)
        except Hole:
            return await self._from_spill()

    def _read_on(self) -> None:
        self._hints.missed = True
        self._hints.news.set()

    async def _from_spill(self) -> list[LogChunk]:
        wanted, loop = (self._source, self._reader.position), asyncio.get_running_loop()
        piece = await loop.run_in_executor(self._listening.threads, self._listening.spill.read, *wanted)
        if piece is None:
            raise self._expired()
        self._read_on()
        return self._reader.spilled(*piece)

    async def _after_silence(self) -> list[LogChunk]:
        """Nothing new in the log: has the job ended without it?"""
        there = await self._client.run(follow(self._source, self._listening.name, INBOX_TTL_S * 10))
        job = self._source.task.job
        raw = await self._client.read_hash(self._client.keys.job(job))
        record = parse_record(job, raw)
        if record is None:
            raise ApiError(500, "internal_error", "the job is not known any more", job_id=job)
        if record.state in TERMINAL - {"succeeded"}:
            raise from_job(record.error or {"code": record.state, "message": f"the job was {record.state}"}, job)
        if record.state == "succeeded" and there is None:
            raise self._expired()
        return []

    def _expired(self) -> ApiError:
        return ApiError(410, "stream_expired", "audio before this point is not kept any more")
