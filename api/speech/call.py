"""One job and the one who listens to it: from admission to the last chunk, whatever form the answer takes."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote

from redis.exceptions import RedisError
from starlette.types import Receive

from speechmill.api.callers import Caller
from speechmill.api.errors import ApiError
from speechmill.api.farm import FarmState
from speechmill.api.http.disconnect import disconnected
from speechmill.api.listen import Listener, ended
from speechmill.api.speech.allowance import Allowance
from speechmill.api.speech.orders import Order
from speechmill.api.speech.submission import Refused, details_of, submit_order
from speechmill.infra.encode import EXTENSIONS, MEDIA_TYPES
from speechmill.infra.jobs import parse_record
from speechmill.infra.keys import new_id, out_log
from speechmill.infra.messages import LogChunk, finish_reason, problem
from speechmill.infra.open_text import HOLD_S, TextWriter
from speechmill.infra.protocol import Call, complete_text

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
    """One job and its listener. Leaving it before the end cancels the job, unless the order is detached.

    `begin`, then `next` until the chunk with the trailer, then `close`, always.
    """

    def __init__(self, farm: FarmState, wanted: Order, route: str, caller: Caller) -> None:
        self.farm = farm
        self.order = wanted
        self.job = new_id("job")
        self.timing = Timing()
        self.finish_reason = ""
        """`stop` or `length`, once all has been heard; empty before."""
        self.allowance = Allowance(farm, caller, self.job, wanted.chars)
        self._route = route
        self._caller = caller
        self._stack = contextlib.AsyncExitStack()
        self._deadline = time.monotonic() + wanted.terms.timeout_s
        self._gone: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._watching: asyncio.Task[None] | None = None
        self._text: TextWriter | None = None
        """Of an order whose text is open."""
        self._holding: asyncio.Task[None] | None = None
        self._chunks: AsyncIterator[LogChunk] | None = None
        self._submitted = False
        self._failed = False
        self._reason = "client"

    async def begin(self, text: str = "") -> None:
        """Admit, register as a listener, submit. Raises Overloaded, or ApiError 429.

        `text`: the beginning of one that is still being written, where the order says so.
        """
        farm, terms = self.farm, self.order.terms
        await self.allowance.take(terms.timeout_s)
        await farm.admit(self.order.card, terms.job_class == "interactive")
        listener = await self._listen(1)
        if self.order.request.open_text:
            self._text = TextWriter(self.job, int(terms.timeout_s) + terms.retention_s + 1)
            await farm.client.run(self._text.begin())
            self._holding = asyncio.create_task(self._hold(self._text))
            await self._write(self._text.append(text))
        earlier = await self._submit()
        if earlier != self.job:
            listener = await self._attach(earlier)
        self._chunks = listener.chunks()

    async def _listen(self, take: int, late: bool = False) -> Listener:
        ttl_s = int(self.order.terms.timeout_s) + self.farm.settings.retention.sync_result_s
        source, frame = out_log(self.job, take), S16_BYTES * self.order.request.channels
        return await self._stack.enter_async_context(self.farm.listening.listen(source, frame, ttl_s, late=late))

    async def _attach(self, earlier: str) -> Listener:
        """Hear the job that was made of the first request with this idempotency key."""
        await self._stack.aclose()
        self.job = earlier
        record = parse_record(earlier, await self.farm.client.read_hash(self.farm.client.keys.job(earlier)))
        if record is None:
            raise ApiError(500, "internal_error", "the job is not known any more", job_id=earlier)
        self.order = replace(self.order, request=record.request)
        return await self._listen(record.take, late=True)

    async def _hold(self, text: TextWriter) -> None:
        """Keep an open text for as long as somebody is here who may write on."""
        while True:
            await asyncio.sleep(HOLD_S)
            with contextlib.suppress(RedisError):
                await self.farm.client.run(text.hold())

    async def extend(self, text: str) -> None:
        """More of an open text. Raises ApiError 429, or 500 when the text is lost."""
        assert self._text is not None
        await self.allowance.charge_more(len(text))
        await self._write(self._text.append(text))
        self.order = replace(self.order, chars=self.order.chars + len(text))
        self.farm.metrics.chars.labels(self.order.card.id).inc(len(text))

    async def complete(self, text: str) -> None:
        """All of an open text is there. Raises ApiError 500 when the text is lost."""
        assert self._text is not None
        asked = json.dumps({**json.loads(self.order.asked), "input": text}, ensure_ascii=False)
        await self.farm.client.run(complete_text(self.job, text, details_of(self.order), asked))
        await self._write(self._text.seal())  # the job may end from here on
        await self.farm.client.wait_durable()

    async def _write(self, call: Call[str]) -> None:
        if await self.farm.client.run(call) != "ok":
            raise ApiError(500, "generation_failed", "the text that was sent is not kept any more", job_id=self.job)

    async def _submit(self) -> str:
        """Answers the job that speaks this order, which may be under way already."""
        self._submitted, self._reason = True, "refused"  # should the answer be lost, the client is told no
        try:
            answer = await submit_order(self.farm, self._caller, self.order, self.job)
        except Refused:
            self._submitted = False
            raise
        self._submitted = answer.answer == "ok"
        await self.farm.client.wait_durable()
        self._reason = "client"
        return answer.job

    def watch(self, receive: Receive) -> None:
        """Leave as soon as the HTTP client does."""
        self._watching = asyncio.create_task(self._await_disconnect(receive))

    async def _await_disconnect(self, receive: Receive) -> None:
        await disconnected(receive)
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
        first_by = self.timing.accepted + self.farm.settings.limits.first_audio_timeout_s
        at_deadline = bool(self.timing.first) or self._deadline <= first_by
        limit = self._deadline if at_deadline else first_by
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
        raise self._late(at_deadline)

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
        if chunk.trailer is not None:
            self.finish_reason = finish_reason(chunk.trailer)
        return chunk

    def _late(self, at_deadline: bool) -> ApiError:
        """Not by the clock: a timer may ring a moment early."""
        if at_deadline:
            self._reason = "deadline"
            return ApiError(504, "deadline_exceeded", "the request was not finished in time", job_id=self.job)
        self._reason = "first_audio"
        return ApiError(504, "first_audio_timeout", "no audio was made in time", job_id=self.job)

    async def close(self) -> None:
        """Leave. What is unfinished is cancelled, unless it is detached and only the client has left."""
        if self._watching is not None:
            self._watching.cancel()
        if self._holding is not None:
            await ended(self._holding)
        keeps_on = self.order.detached and self._reason == "client"
        if self._submitted and not self.finish_reason and not self._failed and not keeps_on:
            code = REASONS[self._reason]
            self.farm.cancel_soon(self.job, self._reason, problem(code, "the request was ended early"))
        await self._stack.aclose()
        if self._text is not None and not self._submitted:
            with contextlib.suppress(RedisError):
                await self.farm.client.run(self._text.discard())
        if self.finish_reason:
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
        if self.finish_reason and timing.audio_s:
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
        """What was heard and made, as OpenAI counts it."""
        return details_of(self.order).usage(frames / self.order.request.sample_rate)
