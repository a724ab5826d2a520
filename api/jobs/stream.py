"""`GET /v1/audio/jobs/{id}/stream`: a job's audio from any frame on, while it is made and after (speech_api §5.4.7).

Every reader has a position of its own in the job's `out` log, and waits there for what does not exist yet.
"""

import asyncio
import base64
import contextlib
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Depends, Path, Query, Request
from starlette.responses import Response
from starlette.types import Send

from speechmill.api.callers import Caller, needs
from speechmill.api.errors import ApiError, StreamBroken, error_object
from speechmill.api.farm import FarmState
from speechmill.api.http.body import wants
from speechmill.api.jobs.find import find_job, finished, read_job
from speechmill.api.jobs.live import EVENT_STREAM, Live, changes, send_status
from speechmill.api.jobs.shown import PATH
from speechmill.api.listen import ended
from speechmill.api.speech.call import S16_BYTES
from speechmill.api.speech.sse import KEEP_ALIVE_S, pieces_of, send_event, send_keep_alive
from speechmill.infra.encode import MEDIA_TYPES, wav_header
from speechmill.infra.jobs import JobRecord
from speechmill.infra.keys import out_log
from speechmill.infra.messages import LogChunk, finish_reason

router = APIRouter(tags=["jobs"])
MOST_FRAMES = 1 << 48
_FOLLOW_S = 3600
_FRAME = re.compile(r"\d{1,15}", re.ASCII)


@router.get(
    f"{PATH}/{{job_id}}/stream",
    summary="Listen to a job",
    response_class=Response,
    responses={200: {"description": "Audio", "content": {"audio/pcm": {}, "audio/wav": {}, "text/event-stream": {}}}},
)
async def stream(
    request: Request,
    caller: Annotated[Caller, Depends(needs("jobs"))],
    job_id: Annotated[str, Path(description="Id of a job.", examples=["job_01JEXAMPLE"])],
    format: Annotated[
        Literal["pcm", "wav"], Query(description="Of raw bytes; events hold pcm.", examples=["wav"])
    ] = "pcm",
    from_frame: Annotated[
        int, Query(ge=0, le=MOST_FRAMES, description="The first frame that you want.", examples=[24_000])
    ] = 0,
) -> Response:
    """From any frame on, whether it is queued, being spoken or finished; by as many readers as there are.

    With `Accept: text/event-stream` as events, whose ids are where the next one begins: `Last-Event-ID` with it, or
    `from_frame`, goes on exactly there. Whoever leaves does not cancel the job.
    """
    farm: FarmState = request.app.state.farm
    start = _start_frame(request.headers.get("last-event-id"), from_frame)
    record = await find_job(farm, caller, job_id)
    if record.ended and start.frame > int(finished(record)["frames"]):
        raise _beyond(record, start)
    if wants(request, "text/event-stream"):
        return _Events(farm, record, start)
    return _Raw(farm, record, start, format)


@dataclass(frozen=True, slots=True)
class _Start:
    """The first frame that a reader wants, and where it said so."""

    frame: int
    param: str


def _start_frame(last_event_id: str | None, from_frame: int) -> _Start:
    if last_event_id is None or not last_event_id.strip():
        return _Start(from_frame, "from_frame")
    if not _FRAME.fullmatch(last_event_id.strip()):
        raise ApiError(400, "invalid_value", "Last-Event-ID must be the id of an event of this stream", "Last-Event-ID")
    return _Start(int(last_event_id), "Last-Event-ID")


def _beyond(record: JobRecord, start: _Start) -> ApiError:
    message = f"the audio ends before frame {start.frame}"
    return ApiError(416, "range_not_satisfiable", message, start.param, job_id=record.job)


class _Stream(Live):
    """A reader's way through the job's audio, from `start` on."""

    def __init__(self, farm: FarmState, record: JobRecord, start: _Start, content_type: str) -> None:
        request = record.request
        super().__init__(
            {
                "Content-Type": content_type,
                "X-Start-Frame": str(start.frame),
                "X-Sample-Rate": str(request.sample_rate),
                "X-Channels": str(request.channels),
                "X-Sample-Format": "s16le",
                "X-Job-Id": record.job,
                "X-Model": quote(record.model, safe="/"),
                "X-Voice": quote(record.details.voice, safe=""),
                "X-Seed": str(request.seed),
            }
        )
        self.farm, self.record, self.begin = farm, record, start
        self.frame_bytes = S16_BYTES * request.channels

    @contextlib.asynccontextmanager
    async def chunks(self) -> AsyncIterator[AsyncIterator[LogChunk]]:
        source = out_log(self.record.job, self.record.take)
        async with self.farm.listening.listen(
            source, self.frame_bytes, _FOLLOW_S, position=self.begin.frame, late=True
        ) as listener:
            yield listener.chunks()

    def check(self, chunk: LogChunk) -> None:
        """Raises ApiError 416 where the audio ended before the reader's first frame."""
        if chunk.trailer is not None and int(chunk.trailer["frames"]) < self.begin.frame:
            raise _beyond(self.record, self.begin)

    async def refusal(self, error: ApiError) -> ApiError:
        """What to tell of a job that has ended without audio: that somebody took it away is no fault of the farm."""
        now = await read_job(self.farm, self.record.job)
        if now is None:
            return ApiError(404, "job_not_found", "the job has been deleted", job_id=self.record.job)
        if now.state in ("cancelling", "cancelled"):
            return ApiError(409, "result_not_ready", "the job has been cancelled", job_id=now.job)
        return error


class _Raw(_Stream):
    """Bytes. The headers wait for the first of them, or for an error that they can still tell."""

    def __init__(self, farm: FarmState, record: JobRecord, start: _Start, audio_format: Literal["pcm", "wav"]) -> None:
        super().__init__(farm, record, start, MEDIA_TYPES[audio_format])
        request = record.request
        self._head = wav_header(request.sample_rate, request.channels, None) if audio_format == "wav" else b""
        self._started = False

    async def tell(self, send: Send) -> None:
        try:
            async with self.chunks() as chunks:
                await self._all(chunks, send)
        except ApiError as error:
            if self._started:
                raise StreamBroken(f"{self.record.job}: {error.code}") from None
            raise await self.refusal(error) from None

    async def _all(self, chunks: AsyncIterator[LogChunk], send: Send) -> None:
        ending = False
        while not ending:
            coming = asyncio.ensure_future(anext(chunks))
            try:
                await self.await_any(coming)
                chunk = coming.result()
            finally:
                await ended(coming)
            self.check(chunk)
            ending = chunk.trailer is not None
            if chunk.payload or ending:
                await self._pass_on(chunk.payload, send)

    async def _pass_on(self, pcm: bytes, send: Send) -> None:
        if not self._started:
            await self.start(send)
            self._started = True
            pcm = self._head + pcm
        if pcm:
            await send({"type": "http.response.body", "body": pcm, "more_body": True})


class _Events(_Stream):
    """Deltas of PCM, and what becomes of the job meanwhile; then exactly one event that ends it."""

    def __init__(self, farm: FarmState, record: JobRecord, start: _Start) -> None:
        super().__init__(farm, record, start, EVENT_STREAM)
        self._frames = start.frame
        self._deltas = 0

    async def tell(self, send: Send) -> None:
        await self.start(send)
        try:
            async with self.chunks() as chunks:
                trailer = await self._all(chunks, send)
        except ApiError as error:
            told = error_object(await self.refusal(error))
            if self._deltas:
                told |= {"partial_audio": True, "action": "discard"}
            await send_event(send, {"type": "speech.audio.error", "error": told})
            return
        await send_event(send, self._done(trailer))

    async def _all(self, chunks: AsyncIterator[LogChunk], send: Send) -> Mapping[str, Any]:
        """Answers what the audio's end says of it."""
        news = changes(self.farm, self.record)
        await send_status(self.farm, await anext(news), send)
        coming: asyncio.Future[Any] = asyncio.ensure_future(anext(chunks))
        status: asyncio.Future[Any] = asyncio.ensure_future(anext(news, None))
        try:
            while True:
                waiting = (coming, status) if not status.done() or status.result() is not None else (coming,)
                await self.await_any(*waiting, timeout_s=KEEP_ALIVE_S)
                if not any(one.done() for one in waiting):
                    await send_keep_alive(send)
                if status in waiting and status.done() and status.result() is not None:
                    await send_status(self.farm, status.result(), send)
                    status = asyncio.ensure_future(anext(news, None))
                if coming.done():
                    chunk = coming.result()
                    self.check(chunk)
                    await self._delta(chunk, send)
                    if chunk.trailer is not None:
                        return dict(chunk.trailer)
                    coming = asyncio.ensure_future(anext(chunks))
        finally:
            await ended(coming)
            await ended(status)

    async def _delta(self, chunk: LogChunk, send: Send) -> None:
        request = self.record.request
        for piece in pieces_of(chunk.payload):
            self._frames += len(piece) // self.frame_bytes
            self._deltas += 1
            delta = {
                "type": "speech.audio.delta",
                "audio": base64.b64encode(piece).decode(),
                "response_format": "pcm",
                "sample_rate": request.sample_rate,
                "channels": request.channels,
            }
            await send_event(send, delta, str(self._frames))

    def _done(self, trailer: Mapping[str, Any]) -> dict[str, Any]:
        seconds = self._frames / self.record.request.sample_rate
        return {
            "type": "speech.audio.done",
            "usage": self.record.details.usage(seconds),
            "duration_ms": round(seconds * 1000),
            "job_id": self.record.job,
            "seed": self.record.request.seed,
            "finish_reason": finish_reason(trailer),
        }
