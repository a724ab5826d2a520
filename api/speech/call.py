"""One job and the one who listens to it: from admission to the last chunk, whatever form the answer takes."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from redis.exceptions import RedisError
from starlette.types import Receive

from speechmill.api.callers import Caller
from speechmill.api.errors import ApiError
from speechmill.api.farm import FarmState
from speechmill.api.listen import Listener, ended
from speechmill.api.speech.allowance import Allowance
from speechmill.api.speech.orders import Order
from speechmill.infra.encode import EXTENSIONS, MEDIA_TYPES
from speechmill.infra.errors import Overloaded
from speechmill.infra.keys import new_id, out_log
from speechmill.infra.messages import LogChunk, Submission, problem
from speechmill.infra.protocol import Limits, submit

S16_BYTES = 2
REASONS = {
    "client": "cancelled",
    "deadline": "deadline_exceeded",
    "first_audio": "first_audio_timeout",
    "refused": "internal_error",
}
"""Why we end a job early, and the error code that it gets."""


class ClientGone(Exception):
    """Nobody wants the audio any more: the client has closed the connection, or called it off."""


@dataclass(slots=True)
class Timing:
    """Moments of one call, on the monotonic clock."""

    accepted: float = field(default_factory=time.monotonic)
    queued_s: float | None = None
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
    """One job and its listener. Leaving it before the end cancels the job, unless it is to be stored.

    `begin`, then `next` until the chunk with the trailer, then `close`, always.
    """

    def __init__(self, farm: FarmState, wanted: Order, route: str, caller: Caller) -> None:
        self.farm = farm
        self.order = wanted
        self.job = new_id("job")
        self.timing = Timing()
        self.done = False
        self.allowance = Allowance(farm, caller, self.job, wanted.chars)
        self._route = route
        self._caller = caller
        self._stack = contextlib.AsyncExitStack()
        self._deadline = time.monotonic() + wanted.timeout_s
        self._gone: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._watching: asyncio.Task[None] | None = None
        self._chunks: AsyncIterator[LogChunk] | None = None
        self._submitted = False
        self._failed = False
        self._reason = "client"

    async def begin(self) -> None:
        """Admit, register as a listener, submit. Raises Overloaded, or ApiError 429."""
        farm, wanted = self.farm, self.order
        await self.allowance.take(wanted.timeout_s)
        await farm.admit(wanted.card, wanted.job_class == "interactive")
        ttl_s = int(wanted.timeout_s) + farm.settings.retention.sync_result_s
        frame = S16_BYTES * wanted.request.channels
        listener: Listener = await self._stack.enter_async_context(
            farm.listening.listen(out_log(self.job, 1), frame, ttl_s)
        )
        await self._submit()
        self._chunks = listener.chunks()

    async def _submit(self) -> None:
        wanted, settings = self.order, self.farm.settings
        submission = Submission(
            job=self.job,
            model=wanted.card.id,
            stages=tuple(stage.name for stage in wanted.card.stages),
            segments=wanted.segments,
            request=wanted.request,
            project=self._caller.project,
            job_class=wanted.job_class,
            live=wanted.mode != "buffered",
            timeout_s=wanted.timeout_s,
            retention_s=wanted.request.keep_s,
            max_attempts=settings.worker.max_attempts,
            ahead=wanted.card.segments.ahead,
            order=wanted.card.segments.order,
        )
        most = self._caller.limits.queued_jobs or settings.limits.project_jobs
        limits = Limits(settings.limits.queue_depth, most)
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

    def watch(self, receive: Receive) -> None:
        """Leave as soon as the HTTP client does."""
        self._watching = asyncio.create_task(self._await_disconnect(receive))

    async def _await_disconnect(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.leave()

    def leave(self) -> None:
        """Nobody wants the rest: whoever waits for it gets ClientGone."""
        if not self._gone.done():
            self._gone.set_result(None)

    async def next(self) -> LogChunk:
        """The next chunk. Raises ClientGone, or ApiError for a failed job or a limit of time."""
        assert self._chunks is not None
        if self._gone.done():  # also while there is plenty to send still
            raise ClientGone
        limit = self._deadline
        if not self.timing.first:
            limit = min(limit, self.timing.accepted + self.farm.settings.limits.first_audio_timeout_s)
        waiting: asyncio.Future[Any] = asyncio.ensure_future(anext(self._chunks))
        try:
            timeout = max(limit - time.monotonic(), 0)
            await asyncio.wait({waiting, self._gone}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if waiting.done():
                return self._note(waiting.result())
        except ApiError:
            self._failed = True
            raise
        finally:
            await ended(waiting)
        if self._gone.done():
            raise ClientGone
        raise self._late()

    async def first(self) -> LogChunk:
        """The first chunk with audio. Raises as `next`, and ApiError 500 when there is none at all."""
        chunk = await self.next()
        while chunk.trailer is None and not chunk.payload:
            chunk = await self.next()
        if chunk.trailer is not None:
            raise ApiError(500, "generation_failed", "the model made no audio", job_id=self.job)
        return chunk

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

    async def close(self) -> None:
        """Leave. What is unfinished is cancelled, unless it is to be stored and only the client has left."""
        if self._watching is not None:
            self._watching.cancel()
        keeps_on = self.order.store and self._reason == "client"
        if self._submitted and not self.done and not self._failed and not keeps_on:
            code = REASONS[self._reason]
            self.farm.cancel_soon(self.job, self._reason, problem(code, "the request was ended early"))
        await self._stack.aclose()
        if self.done:
            with contextlib.suppress(RedisError):
                await self.note_queue()
        await self.allowance.settle(accepted=self._submitted, audio_s=self.timing.audio_s)

    async def note_queue(self) -> None:
        """Look up how long the job waited for its first worker."""
        if self.timing.queued_s is not None:
            return
        record = await self.farm.client.read_hash(self.farm.client.keys.job(self.job))
        if b"started" in record:
            card = self.order.card
            self.timing.queued_s = (int(record[b"started"]) - int(record[b"created"])) / 1000
            self.farm.metrics.queue_wait.labels(card.id, card.stages[0].name).observe(self.timing.queued_s)

    def observe(self, status: int) -> None:
        """Count the call."""
        wanted, timing, metrics = self.order, self.timing, self.farm.metrics
        model = wanted.card.id
        labels = (self._route, model, wanted.audio_format, wanted.mode, str(status))
        metrics.requests.labels(*labels).inc()
        took_s = time.monotonic() - timing.accepted
        metrics.total.labels(model, wanted.mode).observe(took_s)
        if self.done and timing.audio_s:
            metrics.rtf.labels(model).observe(took_s / timing.audio_s)
        metrics.audio.labels(model).inc(timing.audio_s)
        if timing.first:
            metrics.first_audio.labels(model, wanted.mode).observe(timing.first - timing.accepted)
        if wanted.mode != "buffered":
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
            **self.allowance.headers,
        }
        if audio_format in ("pcm", "wav"):
            headers["X-Sample-Format"] = "s16le"
        if wanted.ignored:
            headers["X-Ignored-Params"] = ", ".join(wanted.ignored)
        return headers

    def usage(self, frames: int) -> dict[str, Any]:
        """Text counts characters where the model's tokenizer is not at hand; output counts the first stage's frames."""
        wanted = self.order
        made = round(frames / wanted.request.sample_rate * wanted.card.stages[0].rate)
        heard = wanted.chars + wanted.reference_frames
        return {
            "input_tokens": heard,
            "output_tokens": made,
            "total_tokens": heard + made,
            "input_token_details": {"text_tokens": wanted.chars, "audio_tokens": wanted.reference_frames},
        }
