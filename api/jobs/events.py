"""`GET /v1/audio/jobs/{id}/events`: what becomes of a job, as it happens (speech_api §5.4.7)."""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request
from starlette.responses import Response
from starlette.types import Send

from speechmill.api.callers import Caller, needs
from speechmill.api.farm import FarmState
from speechmill.api.jobs.find import find_job
from speechmill.api.jobs.live import EVENT_STREAM, Live, changes, send_status
from speechmill.api.jobs.shown import PATH
from speechmill.api.listen import ended
from speechmill.api.speech.sse import KEEP_ALIVE_S, send_keep_alive
from speechmill.infra.jobs import JobRecord

router = APIRouter(tags=["jobs"])


@router.get(
    f"{PATH}/{{job_id}}/events",
    summary="What becomes of a job, as it happens",
    response_class=Response,
    responses={200: {"description": "Events", "content": {"text/event-stream": {}}}},
)
async def events(
    request: Request,
    caller: Annotated[Caller, Depends(needs("jobs"))],
    job_id: Annotated[str, Path(description="Id of a job.", examples=["job_01JEXAMPLE"])],
) -> Response:
    """`job.status` at once and at every change, each with the whole job, until it has ended."""
    farm: FarmState = request.app.state.farm
    return _Events(farm, await find_job(farm, caller, job_id))


class _Events(Live):
    def __init__(self, farm: FarmState, record: JobRecord) -> None:
        super().__init__({"Content-Type": EVENT_STREAM})
        self._farm, self._record = farm, record

    async def tell(self, send: Send) -> None:
        await self.start(send)
        news = changes(self._farm, self._record)
        while (now := await self._next(news, send)) is not None:
            await send_status(self._farm, now, send)

    async def _next(self, news: AsyncIterator[JobRecord], send: Send) -> JobRecord | None:
        """What the job has become; comments while it stays what it is. None behind the last."""
        coming: asyncio.Future[JobRecord | None] = asyncio.ensure_future(anext(news, None))
        try:
            while not coming.done():
                await self.await_any(coming, timeout_s=KEEP_ALIVE_S)
                if not coming.done():
                    await send_keep_alive(send)
            return coming.result()
        finally:
            await ended(coming)
