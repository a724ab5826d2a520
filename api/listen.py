"""One inbox reader for each API process: hands chunks of `out` logs to the responses that wait for them.

Inbox entries are hints. A listener that meets a hole, or hears nothing for a second, reads the log itself; what has
left the log it reads from the spilled objects, or from the stored result where that holds every sample.
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from redis.exceptions import RedisError

from speechmill.api.errors import ApiError, from_job
from speechmill.api.stored_sound import LOSSLESS, StoredSound
from speechmill.infra.client import BLOCK_MS, UNAVAILABLE, AsyncClient, read_entries
from speechmill.infra.errors import StoreUnavailable
from speechmill.infra.jobs import TERMINAL, JobRecord, parse_record
from speechmill.infra.keys import LogRef, Task, new_id
from speechmill.infra.messages import LogChunk, finish_reason
from speechmill.infra.objects import ObjectMissing, ObjectStore
from speechmill.infra.protocol import Hole, LogReader, follow, keep, poke, unfollow
from speechmill.infra.spill import Spill

log = logging.getLogger(__name__)
T = TypeVar("T")
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

    def __init__(self, client: AsyncClient, objects: ObjectStore, threads: Executor) -> None:
        """`threads` wait for the object store."""
        self.client = client
        self.objects = objects
        self.spill = Spill(objects)
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
    async def listen(
        self, source: LogRef, frame_bytes: int, ttl_s: int, position: int = 0, late: bool = False
    ) -> AsyncIterator["Listener"]:
        """Register for a log, which need not exist yet. `late`: it may well, and is read at once."""
        hints = _Hints(missed=late)
        if late:
            hints.news.set()
        self._listeners.setdefault(source.name, []).append(hints)
        self.active += 1
        self._idle.clear()
        listener = Listener(self, source, hints, frame_bytes, position, late)
        try:
            await self.client.run(follow(source, self.name, ttl_s))
            yield listener
        finally:
            listener.close()
            self.active -= 1
            if not self.active:
                self._idle.set()
            self._listeners[source.name].remove(hints)
            if not self._listeners[source.name]:
                del self._listeners[source.name]
                with contextlib.suppress(*UNAVAILABLE):
                    await asyncio.shield(self.client.run(unfollow(source, self.name)))


class Listener:
    """One reader of one `out` log."""

    def __init__(
        self, listening: Listening, source: LogRef, hints: _Hints, frame_bytes: int, position: int, late: bool
    ) -> None:
        self._listening = listening
        self._client = listening.client
        self._source = source
        self._hints = hints
        self._reader = LogReader(position, frame_bytes)
        self._stored: StoredSound | None = None
        self._late = late

    @property
    def position(self) -> int:
        """Frames taken so far."""
        return self._reader.position

    def close(self) -> None:
        if self._stored is not None:
            self._stored.close()

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
        if self._stored is not None:
            return await self._read_or_wait(partial(self._from_result, self._stored))
        try:
            for fields in await self._hints.take(SILENCE_S):
                chunks += self._reader.hint(fields)
            return chunks
        except Hole:
            chunks += await self._read_or_wait(self._read)
            was_late, self._late = self._late, False
            return chunks or (await self._read_or_wait(self._after_silence) if was_late else [])
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
        piece = await self._in_store(self._listening.spill.read, self._source, self._reader.position)
        if piece is None:
            return await self._once_ended(await self._record())
        self._read_on()
        return self._reader.spilled(*piece)

    async def _after_silence(self) -> list[LogChunk]:
        """Nothing new in the log: has the job ended without it?"""
        there = await self._client.run(follow(self._source, self._listening.name, INBOX_TTL_S * 10))
        record = await self._record()
        if record.state in TERMINAL - {"succeeded"}:
            error = record.error or {"code": record.state, "message": f"the job was {record.state}"}
            raise from_job(error, record.job)
        if there is not None and there.trailer and self._reader.position > there.end:
            return self._reader.hint({b"e": b"%d" % there.end, b"t": there.trailer})
        if record.state == "succeeded" and there is None:
            return await self._once_ended(record)
        return []

    async def _record(self) -> JobRecord:
        job = self._source.task.job
        record = parse_record(job, await self._client.read_hash(self._client.keys.job(job)))
        if record is None:
            raise ApiError(500, "internal_error", "the job is not known any more", job_id=job)
        return record

    async def _once_ended(self, record: JobRecord) -> list[LogChunk]:
        """The log is gone, and what was spilled of it is not known to be there."""
        if record.result is None:
            raise self._expired()
        if record.result["format"] in LOSSLESS:
            self._stored = StoredSound(self._listening.objects, record.result)
            return await self._from_result(self._stored)
        wanted, frames = self._reader.position, int(record.result["frames"])
        piece = await self._in_store(self._listening.spill.read, self._source, wanted) if wanted < frames else None
        if piece is not None:
            return self._reader.spilled(*piece)
        if wanted < frames:
            raise self._expired()
        return self._end(record.result)

    async def _from_result(self, stored: StoredSound) -> list[LogChunk]:
        try:
            pcm = await self._in_store(stored.read, self._reader.position)
        except ObjectMissing:
            raise self._expired() from None
        return self._reader.spilled(self._reader.position, pcm) if pcm else self._end(stored.result)

    def _end(self, result: Mapping[str, Any]) -> list[LogChunk]:
        frames = int(result["frames"])
        trailer = json.dumps({"frames": frames, "finish_reason": finish_reason(result)}).encode()
        return self._reader.hint({b"e": b"%d" % min(frames, self._reader.position), b"t": trailer})

    async def _in_store(self, work: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._listening.threads, work, *arguments)

    def _expired(self) -> ApiError:
        return ApiError(410, "stream_expired", "audio before this point is not kept any more")
