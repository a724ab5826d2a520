"""Answers that go on for as long as a job is worked on. A client that leaves takes nothing with it."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from speechmill.api.farm import FarmState
from speechmill.api.http.disconnect import disconnected
from speechmill.api.jobs.find import read_job
from speechmill.api.jobs.shown import show_job
from speechmill.api.listen import ended
from speechmill.api.speech.call import ClientGone
from speechmill.api.speech.raw import STREAM_HEADERS
from speechmill.api.speech.sse import send_event
from speechmill.infra.jobs import JobRecord

EVENT_STREAM = "text/event-stream; charset=utf-8"
_LONG_S = 3600.0


class Live(Response, ABC):
    """`tell` does the telling, from the first header on."""

    def __init__(self, headers: dict[str, str]) -> None:
        self.status_code = 200
        self.init_headers({**headers, **STREAM_HEADERS})
        del self.headers["content-length"]
        self.background = None
        self._gone: asyncio.Future[Any]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._gone = asyncio.ensure_future(disconnected(receive))
        try:
            await self.tell(send)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except (ClientGone, OSError):
            pass
        finally:
            await ended(self._gone)

    @abstractmethod
    async def tell(self, send: Send) -> None:
        """Everything but the last, empty piece of the body."""

    async def start(self, send: Send) -> None:
        """Send the headers."""
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})

    async def await_any(self, *waiting: "asyncio.Future[Any]", timeout_s: float | None = None) -> None:
        """Until one is done, or for so long. Raises ClientGone."""
        await asyncio.wait({*waiting, self._gone}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if self._gone.done():
            raise ClientGone


async def changes(farm: FarmState, record: JobRecord) -> AsyncIterator[JobRecord]:
    """The record as it is, and again whenever it has changed, up to the job's end or its deletion."""
    now: JobRecord | None = record
    while now is not None:
        yield now
        if now.ended:
            return
        while not await farm.watching.change(now.job, now.version, _LONG_S):
            pass
        now = await read_job(farm, now.job)


async def send_status(farm: FarmState, record: JobRecord, send: Send) -> None:
    """A `job.status` event: the job object with the event's name."""
    await send_event(send, {"type": "job.status", **await show_job(farm, record)})
