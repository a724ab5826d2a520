"""`POST /v1/audio/speech`: one request becomes one job, and the response is what its `out` log holds."""

import asyncio
import contextlib
import io
import json
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, BinaryIO, ParamSpec, TypeVar, cast
from urllib.parse import quote

from fastapi import APIRouter, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from speechmill.api.body import read_object
from speechmill.api.errors import ApiError
from speechmill.api.farm import FarmState
from speechmill.api.listen import Listener, ended
from speechmill.api.schemas import SpeechBody
from speechmill.api.validate import Order, choose_card, order, parse, unknown_fields
from speechmill.infra.encode import EXTENSIONS, MEDIA_TYPES, Encoder, encoder, file_writer
from speechmill.infra.errors import Overloaded
from speechmill.infra.keys import new_id, out_log
from speechmill.infra.messages import LogChunk, Submission, WordMark, problem
from speechmill.infra.protocol import Limits, submit

router = APIRouter()
MAX_TIMESTAMP_BYTES = 4096
S16_BYTES = 2
SPOOL_BYTES = 8 << 20
"""Whole files up to this size stay in memory until they are sent."""
READ_BYTES = 256 << 10
P = ParamSpec("P")
T = TypeVar("T")
REASONS = {
    "client": "cancelled",
    "deadline": "deadline_exceeded",
    "first_audio": "first_audio_timeout",
    "refused": "internal_error",
}
"""Why we end a job early, and the error code that it gets."""


class ClientGone(Exception):
    """The client has closed the connection: nobody reads an answer."""


class StreamBroken(Exception):
    """Raised into the server after the headers are out, so that the connection is cut and not ended."""


@dataclass(slots=True)
class Timing:
    """Moments of one call, on the monotonic clock."""

    accepted: float = field(default_factory=time.monotonic)
    queued_s: float = 0.0
    first: float = 0.0
    audio_s: float = 0.0
    gap_s: float = 0.0

    def note(self, chunk_s: float) -> None:
        """Audio arrived; how long would a real-time player have been silent before it?"""
        now = time.monotonic()
        self.first = self.first or now
        self.gap_s = max(self.gap_s, now - self.first - self.audio_s)
        self.audio_s += chunk_s


class SpeechCall:
    """One job and its listener. Leaving the context before the end cancels the job, unless it is to be stored."""

    def __init__(self, farm: FarmState, wanted: Order, request: Request) -> None:
        self.farm = farm
        self.order = wanted
        self.job = new_id("job")
        self.timing = Timing()
        self.done = False
        self._request = request
        self._stack = contextlib.AsyncExitStack()
        self._deadline = time.monotonic() + wanted.timeout_s
        self._gone: asyncio.Task[None] | None = None
        self._chunks: AsyncIterator[LogChunk] | None = None
        self._submitted = False
        self._reason = "client"

    async def begin(self) -> None:
        """Admit, register as a listener, submit. Raises Overloaded."""
        farm, wanted = self.farm, self.order
        await farm.admit(wanted.card, wanted.job_class == "interactive")
        ttl_s = int(wanted.timeout_s) + farm.settings.retention.sync_result_s
        frame = S16_BYTES * wanted.request.channels
        listener: Listener = await self._stack.enter_async_context(
            farm.listening.listen(out_log(self.job, 1), frame, ttl_s)
        )
        await self._submit()
        self._chunks = listener.chunks()
        self._gone = asyncio.create_task(self._watch_client())

    async def _submit(self) -> None:
        wanted, settings = self.order, self.farm.settings
        submission = Submission(
            job=self.job,
            model=wanted.card.id,
            stages=tuple(stage.name for stage in wanted.card.stages),
            segments=wanted.segments,
            request=wanted.request,
            job_class=wanted.job_class,
            live=wanted.mode != "buffered",
            timeout_s=wanted.timeout_s,
            retention_s=wanted.request.keep_s,
            max_attempts=settings.worker.max_attempts,
            ahead=wanted.card.segments.ahead,
            order=wanted.card.segments.order,
        )
        limits = Limits(settings.limits.queue_depth, settings.limits.project_jobs)
        self._submitted, self._reason = True, "refused"  # should the answer be lost, the client is told no
        answer = await self.farm.client.run(submit(submission, limits))
        self._submitted = answer.answer not in ("full", "quota")
        if answer.answer == "full":
            state = await self.farm.state(wanted.card)
            raise Overloaded(f"{answer.depth} requests wait already", retry_after_s=max(state.oldest_ms / 1000, 1.0))
        if answer.answer == "quota":
            raise Overloaded(f"{answer.depth} jobs of this project are in work already", retry_after_s=5.0)
        await self.farm.client.wait_durable()
        self._reason = "client"
        self.farm.metrics.chars.labels(wanted.card.id).inc(wanted.chars)

    async def _watch_client(self) -> None:
        while (await self._request.receive())["type"] != "http.disconnect":
            pass

    async def next(self) -> LogChunk:
        """The next chunk. Raises ClientGone, or ApiError for a failed job or a limit of time."""
        assert self._chunks is not None
        assert self._gone is not None
        if self._gone.done():  # also while there is plenty to send still
            raise ClientGone
        limit = self._deadline
        if not self.timing.first:
            limit = min(limit, self.timing.accepted + self.farm.settings.limits.first_audio_timeout_s)
        waiting = asyncio.ensure_future(anext(self._chunks))
        try:
            timeout = max(limit - time.monotonic(), 0)
            await asyncio.wait({waiting, self._gone}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if waiting.done():
                return self._note(waiting.result())
        finally:
            await ended(waiting)
        if self._gone.done():
            raise ClientGone
        raise self._late()

    def _note(self, chunk: LogChunk) -> LogChunk:
        if chunk.payload:
            self.timing.note((chunk.end - chunk.start) / self.order.request.sample_rate)
        self.done = self.done or chunk.trailer is not None
        return chunk

    def _late(self) -> ApiError:
        if time.monotonic() >= self._deadline:
            self._reason = "deadline"
            return ApiError(504, "deadline_exceeded", "the request was not finished in time", job_id=self.job)
        self._reason = "first_audio"
        return ApiError(504, "first_audio_timeout", "no audio was made in time", job_id=self.job)

    async def close(self, failed: bool) -> None:
        """Leave. `failed`: the job itself has ended, there is nothing to cancel."""
        if self._gone is not None:
            self._gone.cancel()
        keeps_on = self.order.store and self._reason == "client"
        if self._submitted and not self.done and not failed and not keeps_on:
            code = REASONS[self._reason]
            self.farm.cancel_soon(self.job, self._reason, problem(code, "the request was ended early"))
        await self._stack.aclose()

    async def note_queue(self) -> None:
        """Look up how long the job waited for its first worker."""
        record = await self.farm.client.read_hash(self.farm.client.keys.job(self.job))
        if b"started" in record:
            self.timing.queued_s = (int(record[b"started"]) - int(record[b"created"])) / 1000

    def observe(self, status: int) -> None:
        """Count the call."""
        wanted, timing, metrics = self.order, self.timing, self.farm.metrics
        model = wanted.card.id
        labels = ("/v1/audio/speech", model, wanted.audio_format, wanted.mode, str(status))
        metrics.requests.labels(*labels).inc()
        metrics.total.labels(model, wanted.mode).observe(time.monotonic() - timing.accepted)
        metrics.audio.labels(model).inc(timing.audio_s)
        if timing.first:
            metrics.first_audio.labels(model, wanted.mode).observe(timing.first - timing.accepted)
        if wanted.mode == "raw":
            metrics.gap.labels(model).observe(timing.gap_s)

    def headers(self) -> dict[str, str]:
        """Those of all modes (speech_api §1.4)."""
        wanted = self.order
        audio_format = wanted.audio_format
        headers = {
            "Content-Type": MEDIA_TYPES[audio_format],
            "Content-Disposition": f'inline; filename="speech.{EXTENSIONS[audio_format]}"',
            "Cache-Control": "no-store",
            "X-Sample-Rate": str(wanted.request.sample_rate),
            "X-Channels": str(wanted.request.channels),
            "X-Job-Id": self.job,
            "X-Model": quote(wanted.card.id, safe="/"),
            "X-Voice": quote(wanted.voice, safe=""),
            "X-Seed": str(wanted.request.seed),
        }
        if audio_format in ("pcm", "wav"):
            headers["X-Sample-Format"] = "s16le"
        if wanted.ignored:
            headers["X-Ignored-Params"] = ", ".join(wanted.ignored)
        return headers


async def _encoded(wanted: Order, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Codecs run beside the event loop; WAV and PCM only add a header."""
    if wanted.audio_format in ("pcm", "wav"):
        return work(*args, **kwargs)
    return await asyncio.to_thread(work, *args, **kwargs)


class RawStream(Response):
    """Bytes of the format while they are made. A failure after the first byte cuts the connection."""

    def __init__(self, call: SpeechCall, making: Encoder, first: LogChunk) -> None:
        headers = {**call.headers(), "X-Accel-Buffering": "no"}
        self.status_code = 200
        self.raw_headers = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        self.background = None
        self._call, self._making, self._first = call, making, first

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        call, failed = self._call, False
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            chunk = self._first
            while chunk.trailer is None:
                await _send(send, await _encoded(call.order, self._making.feed, chunk.payload))
                chunk = await call.next()
            await _send(send, await _encoded(call.order, self._making.finish))
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            call.observe(200)
        except (ClientGone, OSError):
            call.observe(499)
        except ApiError as error:
            failed = error.code not in ("deadline_exceeded", "first_audio_timeout")
            call.observe(error.status)
            raise StreamBroken(f"{call.job}: {error.code}") from None
        finally:
            await asyncio.shield(call.close(failed))


async def _send(send: Send, data: bytes) -> None:
    if data:
        await send({"type": "http.response.body", "body": data, "more_body": True})


class WholeFile(Response):
    """A complete file, sent no faster than the client takes it."""

    def __init__(self, file: BinaryIO, headers: dict[str, str]) -> None:
        super().__init__(None, 200, {**headers, "Content-Length": str(file.seek(0, io.SEEK_END))})
        self._file = file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._file as file:
            file.seek(0)
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            while data := file.read(READ_BYTES):
                await _send(send, data)
            await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _whole(call: SpeechCall, first: LogChunk) -> Response:
    """Everything, then one complete file; an hour of audio is not kept in memory."""
    file = cast(BinaryIO, tempfile.SpooledTemporaryFile(SPOOL_BYTES))  # noqa: SIM115  closed by the response
    try:
        return WholeFile(file, await _write_whole(call, first, file))
    except BaseException:
        file.close()
        raise


async def _write_whole(call: SpeechCall, first: LogChunk, file: BinaryIO) -> dict[str, str]:
    """All of the audio into a file; answers the headers to send it with."""
    wanted, marks, chunk, frames = call.order, list(first.marks), first, 0
    making = file_writer(wanted.audio_format, wanted.request.sample_rate, wanted.request.channels, file)
    while chunk.trailer is None:
        await _encoded(wanted, making.write, chunk.payload)
        frames += chunk.end - chunk.start
        chunk = await call.next()
        marks += chunk.marks
    await _encoded(wanted, making.finish)
    await call.note_queue()
    headers = call.headers() | _usage(wanted, frames) | _server_timing(call.timing)
    headers["X-Audio-Duration-Ms"] = str(round(frames * 1000 / wanted.request.sample_rate))
    if wanted.word_timestamps:
        headers |= _word_timestamps(marks, wanted.request.sample_rate)
    return headers


def _usage(wanted: Order, frames: int) -> dict[str, str]:
    """Text in characters, where the model has no tokenizer of its own; output in frames of the first stage."""
    made = round(frames / wanted.request.sample_rate * wanted.card.stages[0].rate)
    counts = {
        "input": wanted.chars,
        "output": made,
        "total": wanted.chars + made,
        "input-text": wanted.chars,
        "input-audio": 0,
    }
    return {f"x-vllm-omni-{name}-tokens": str(count) for name, count in counts.items()}


def _server_timing(timing: Timing) -> dict[str, str]:
    first, total = timing.first - timing.accepted, time.monotonic() - timing.accepted
    parts = {"queue": timing.queued_s, "first": first, "total": total}
    return {"Server-Timing": ", ".join(f"{name};dur={seconds * 1000:.1f}" for name, seconds in parts.items())}


def _word_timestamps(marks: list[WordMark], rate: int) -> dict[str, str]:
    times: list[dict[str, Any]] = [
        {"word": mark.word, "start_ms": round(mark.start * 1000 / rate), "end_ms": round(mark.end * 1000 / rate)}
        for mark in marks
    ]
    text = json.dumps(times, separators=(",", ":"))
    if len(text) <= MAX_TIMESTAMP_BYTES:
        return {"X-Word-Timestamps": text}
    return {"X-Word-Timestamps-Omitted": f"oversize; bytes={len(text)}; limit={MAX_TIMESTAMP_BYTES}"}


async def _first_audio(call: SpeechCall) -> LogChunk:
    chunk = await call.next()
    while chunk.trailer is None and not chunk.payload:
        chunk = await call.next()
    if chunk.trailer is not None:
        raise ApiError(500, "generation_failed", "the model made no audio", job_id=call.job)
    return chunk


@router.post(
    "/v1/audio/speech",
    summary="Speak a text",
    response_class=Response,
    responses={200: {"description": "Audio", "content": {kind: {} for kind in MEDIA_TYPES.values()}}},
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": SpeechBody.model_json_schema(ref_template="#/{model}")}},
        }
    },
)
async def speech(request: Request) -> Response:
    """Text in, speech out, whole or while it is made (`stream_format: audio`). A client that leaves cancels the job."""
    farm: FarmState = request.app.state.farm
    body = parse(await read_object(request, farm.settings.limits.body_bytes))
    ignored = unknown_fields(body, request.headers.get("x-strict-params", "").casefold() == "true")
    card = choose_card(body.model, farm.models, farm.settings.default_model)
    call = SpeechCall(farm, order(body, card, farm.settings, ignored), request)
    failed = False
    try:
        await call.begin()
        first = await _first_audio(call)
        if call.order.mode == "raw":
            wanted = call.order
            making = encoder(wanted.audio_format, wanted.request.sample_rate, wanted.request.channels)
            return RawStream(call, making, first)
        response = await _whole(call, first)
        call.observe(200)
    except ClientGone:
        call.observe(499)
        response = Response(status_code=499)
    except ApiError as error:
        failed = error.code not in ("deadline_exceeded", "first_audio_timeout")
        call.observe(error.status)
        await call.close(failed)
        raise
    except BaseException:
        await call.close(failed)
        raise
    await call.close(failed)
    return response
