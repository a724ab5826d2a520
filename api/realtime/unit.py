"""One stretch of text on its way to a WebSocket client, from `audio.start` to `audio.done` (speech_api §2.2)."""

import asyncio
import base64
import io
from collections.abc import Awaitable, Callable
from typing import Any

from redis.exceptions import RedisError

from speechmill.api.errors import ApiError, translate
from speechmill.api.realtime.channel import Disconnected
from speechmill.api.realtime.session_config import Desk, SessionConfig
from speechmill.api.speech.buffered import beside, word_times, write_whole
from speechmill.api.speech.call import ClientGone, SpeechCall
from speechmill.infra.encode import encoder
from speechmill.infra.errors import FarmError
from speechmill.infra.messages import LogChunk, WordMark

Send = Callable[[dict[str, Any] | bytes], Awaitable[None]]
FAILURES = (ApiError, FarmError, RedisError)
"""What can go wrong with one request, and hurts no other."""
_REFUSED = (429, 503)
"""Whoever asks too early may ask again."""


class Unit:
    """`begin` it when its audio may be made, `speak` it when its turn has come, `close` it always."""

    def __init__(self, desk: Desk, config: SessionConfig, utterance: int, sentence: int, text: str) -> None:
        self.utterance = utterance
        self.sentence = sentence
        self.text = text
        self.most_chars = len(text)
        """What its text may come to."""
        self._desk = desk
        self._config = config
        self._left: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._fault: ApiError | None = None
        self._first: asyncio.Task[LogChunk] | None = None
        self._call: SpeechCall | None = None
        self.spoken = False
        """Its audio has ended."""
        self._started = False
        self._bytes = 0
        self._frames = 0
        self._chunks = 0

    def begin(self) -> None:
        """Have the audio made, if that is not under way."""
        if self._first is None:
            self._first = asyncio.create_task(self._prepare())

    async def _prepare(self) -> LogChunk:
        call = await self._call_for(self.text)
        await call.begin()
        return await call.first()

    async def _call_for(self, text: str, open_text: bool = False) -> SpeechCall:
        wanted = await self._desk.order({**self._config.fields, "input": text}, open_text)
        if self._left.done():
            raise ClientGone
        self._call = self._desk.call(wanted)
        return self._call

    @property
    def idle_s(self) -> float:
        """Since when it waits for its client."""
        return 0.0

    @property
    def failed(self) -> bool:
        """It was not spoken to its end, or will not be."""
        return self._fault is not None

    def fail(self, error: ApiError) -> None:
        """It cannot be spoken to its end."""
        self._fault = self._fault or error
        self.leave()

    def leave(self) -> None:
        """Nobody wants it any more."""
        if not self._left.done():
            self._left.set_result(None)
        if self._call is not None:
            self._call.leave()

    async def close(self) -> None:
        """Let go of the job; what is unfinished is cancelled."""
        self.leave()
        if self._first is not None:
            await asyncio.wait({self._first})
            if not self._first.cancelled():
                self._first.exception()  # whoever had to know of it knows
        if self._call is not None:
            await self._call.close()

    # -- its turn ---------------------------------------------------------------------------------------------------

    async def speak(self, send: Send, sounds: Callable[[], None]) -> None:
        """From `audio.start` to `audio.done`; calls `sounds` when audio begins to come. Raises Disconnected."""
        status = 200
        try:
            if not self._config.streams:
                await self._start(send)
            chunk = await self._first_chunk()
            sounds()
            await self._audio(send, chunk)
        except ClientGone:
            status = self._fault.status if self._fault else 499
            await self._tell(send, self._failed(self._fault) if self._fault else self._cancelled())
        except Disconnected:
            self._observe(499)
            raise
        except FAILURES as failure:
            self._fault = error = translate(failure)
            status = error.status
            await self._tell(send, self._failed(error))
        self._observe(status)
        self.spoken = True
        failed = status not in (200, 499)
        facts: dict[str, Any] = {"total_bytes": self._bytes, "error": failed, "duration_ms": self._ms(self._frames)}
        if self._call is not None and self._call.finish_reason:
            facts["finish_reason"] = self._call.finish_reason
        await self._tell(send, self._message("audio.done", **facts))

    async def _tell(self, send: Send, message: dict[str, Any]) -> None:
        """What follows `audio.start`, which there always is."""
        await self._start(send)
        await send(message)

    async def _start(self, send: Send) -> None:
        if self._started:
            return
        self._started = True
        wanted = self._config.order
        facts = {
            "sentence_text": self.text,
            "format": wanted.audio_format,
            "sample_rate": wanted.request.sample_rate,
            "channels": wanted.request.channels,
        }
        await send(self._message("audio.start", **facts, **({"word_timestamps": True} if self._timed else {})))

    async def _audio(self, send: Send, chunk: LogChunk) -> None:
        assert self._call is not None
        if self._config.streams:
            await self._stream(send, self._call, chunk)
            return
        file = io.BytesIO()
        frames, _ = await write_whole(self._call, chunk, file)
        await self._send_audio(send, file.getvalue(), frames)

    async def _first_chunk(self) -> LogChunk:
        """What was refused when it was asked for ahead of its turn is asked for again."""
        ahead = self._first is not None
        self.begin()
        try:
            return await self._prepared()
        except FAILURES as refusal:
            if not ahead or translate(refusal).status not in _REFUSED:
                raise
        if self._call is not None:
            await self._call.close()
        self._first = self._call = None
        self.begin()
        return await self._prepared()

    async def _prepared(self) -> LogChunk:
        assert self._first is not None
        either: set[asyncio.Future[Any]] = {self._first, self._left}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if self._left.done():
            raise ClientGone
        return self._first.result()

    async def _stream(self, send: Send, call: SpeechCall, chunk: LogChunk) -> None:
        wanted, marks = call.order, list[WordMark]()
        making = encoder(wanted.audio_format, wanted.request.sample_rate, wanted.request.channels)
        while chunk.trailer is None:
            marks += chunk.marks
            await self._send_audio(send, await beside(wanted, making.feed, chunk.payload), chunk.end - chunk.start)
            chunk = await call.next()
        await self._send_audio(send, await beside(wanted, making.finish), 0)
        if self._timed:
            times = word_times([*marks, *chunk.marks], wanted.request.sample_rate)
            await send(self._chunk(b"", 0, times))

    async def _send_audio(self, send: Send, data: bytes, frames: int) -> None:
        """`frames`: as many samples of each channel as went into the encoder for it."""
        if data:
            await self._start(send)
            await send(self._chunk(data, frames, None) if self._timed else data)
        self._bytes += len(data)
        self._frames += frames

    # -- messages ---------------------------------------------------------------------------------------------------

    @property
    def _timed(self) -> bool:
        return self._config.order.word_timestamps

    def _ms(self, frames: int) -> int:
        return round(frames * 1000 / self._config.order.request.sample_rate)

    def _message(self, kind: str, **fields: Any) -> dict[str, Any]:
        return {"type": kind, "utterance_index": self.utterance, "sentence_index": self.sentence, **fields}

    def _chunk(self, data: bytes, frames: int, times: list[dict[str, Any]] | None) -> dict[str, Any]:
        """Audio with its place in the unit; the last one holds the times of the words instead."""
        request = self._config.order.request
        self._chunks += 1
        return self._message(
            "audio.chunk",
            chunk_id=self._chunks - 1,
            chunk_start_ms=self._ms(self._frames),
            chunk_end_ms=self._ms(self._frames + frames),
            sample_rate=request.sample_rate,
            channels=request.channels,
            audio_b64=base64.b64encode(data).decode(),
            timestamps=times,
        )

    def _cancelled(self) -> dict[str, Any]:
        return self._message("audio.cancelled", sent_ms=self._ms(self._frames), reason="client_cancel")

    def _failed(self, error: ApiError) -> dict[str, Any]:
        partial = {"partial_audio": True, "action": "discard"} if self._bytes else {}
        return self._message("error", message=error.message, code=error.code, param=error.param) | error.extra | partial

    def _observe(self, status: int) -> None:
        if self._call is not None:
            self._call.observe(status)
