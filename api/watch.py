"""One poller for everybody in an API process who waits for a job to change: waiters hold no connection of their own."""

import asyncio
import contextlib
import logging
from collections.abc import Sequence

from redis.exceptions import RedisError

from speechmill.api.listen import ended
from speechmill.infra.client import AsyncClient

log = logging.getLogger(__name__)
POLL_S = 0.2
RETRY_S = 1.0
_AT_ONCE = 500


class Watching:
    """Looks at the versions of the jobs that somebody waits for, and at nothing while nobody does."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._waiting: dict[str, dict[asyncio.Future[None], int]] = {}
        self._polling: asyncio.Task[None] | None = None

    async def change(self, job: str, version: int, timeout_s: float) -> bool:
        """Whether the job's version became another one, or the job went, in so many seconds."""
        news: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(job, {})[news] = version
        if self._polling is None or self._polling.done():
            self._polling = asyncio.create_task(self._poll())
        try:
            await asyncio.wait({news}, timeout=timeout_s)
            return news.done()
        finally:
            del self._waiting[job][news]
            if not self._waiting[job]:
                del self._waiting[job]

    async def _poll(self) -> None:
        while self._waiting:
            try:
                await self._look(list(self._waiting))
                await asyncio.sleep(POLL_S)
            except RedisError as error:
                log.warning("server away", extra={"error": str(error)})
                await asyncio.sleep(RETRY_S)

    async def _look(self, jobs: Sequence[str]) -> None:
        for first in range(0, len(jobs), _AT_ONCE):
            some = jobs[first : first + _AT_ONCE]
            pipe = self._client.server("control").pipeline(transaction=False)
            for job in some:
                pipe.hget(self._client.keys.job(job), "version")
            for job, version in zip(some, await pipe.execute(), strict=True):
                self._tell(job, int(version or 0))

    def _tell(self, job: str, version: int) -> None:
        for news, known in self._waiting.get(job, {}).items():
            if version != known and not news.done():
                news.set_result(None)

    async def stop(self) -> None:
        if self._polling is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await ended(self._polling)
