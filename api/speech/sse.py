"""Server-sent events with base64 audio (speech_api §1.6)."""

import asyncio
import base64
import json
from collections.abc import Iterator
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from speechmill.api.errors import ApiError, error_object
from speechmill.api.speech.buffered import beside, word_times
from speechmill.api.speech.call import ClientGone, SpeechCall
from speechmill.api.speech.raw import STREAM_HEADERS
from speechmill.infra.encode import encoder
from speechmill.infra.messages import LogChunk, WordMark

MAX_DELTA_BYTES = 64 << 10
"""Decoded, in one event; whole frames of one or two channels fit in without a rest."""
HEADERS_S = 5.0
"""Headers wait so long for the first audio, or for an error that they could still tell."""
KEEP_ALIVE_S = 10.0


class SpeechEvents(Response):
    """One delta after the other, then exactly one event that ends it."""

    def __init__(self, call: SpeechCall, first: asyncio.Task[LogChunk]) -> None:
        """`first` brings the first chunk, or raises; it may be under way still."""
        self.status_code = 200
        content_type = "text/event-stream; charset=utf-8"
        headers = {**call.headers(), **STREAM_HEADERS, "Content-Type": content_type}
        del headers["Content-Disposition"]
        self.init_headers(headers)
        del self.headers["content-length"]
        self.background = None
        self._call, self._coming = call, first
        self._frames = 0
        self._deltas = 0
        self._marks: list[WordMark] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        call = self._call
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            status = await self._speak(send)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            call.observe(status)
        except (ClientGone, OSError):
            call.observe(499)
        finally:
            self._coming.cancel()
            await asyncio.shield(call.close())

    async def _speak(self, send: Send) -> int:
        try:
            await self._deltas_of_all(send)
        except ApiError as error:
            told = error_object(error)
            if self._deltas:
                told |= {"partial_audio": True, "action": "discard"}
            await send_event(send, {"type": "speech.audio.error", "error": told})
            return error.status
        if self._call.order.word_timestamps:
            times = word_times(self._marks, self._call.order.request.sample_rate)
            await send_event(send, {"type": "speech.audio.timestamps", "timestamps": times})
        await send_event(send, self._done())
        return 200

    async def _deltas_of_all(self, send: Send) -> None:
        call = self._call
        request = call.order.request
        making = encoder(call.order.audio_format, request.sample_rate, request.channels)
        chunk = await self._next(send)
        while chunk.trailer is None:
            self._marks += chunk.marks
            self._frames = chunk.end
            await self._send_deltas(send, await beside(call.order, making.feed, chunk.payload))
            self._coming = asyncio.ensure_future(call.next())
            chunk = await self._next(send)
        self._marks += chunk.marks
        await self._send_deltas(send, await beside(call.order, making.finish))

    async def _next(self, send: Send) -> LogChunk:
        """The next chunk, with comments while it lets itself be waited for."""
        while True:
            done, _ = await asyncio.wait({self._coming}, timeout=KEEP_ALIVE_S)
            if done:
                return self._coming.result()
            await send_keep_alive(send)

    async def _send_deltas(self, send: Send, data: bytes) -> None:
        request = self._call.order.request
        exact = self._call.order.audio_format in ("pcm", "wav", "flac")
        pieces = list(pieces_of(data))
        left = len(data)
        for piece in pieces:
            left -= len(piece)
            behind = left // (2 * request.channels) if self._call.order.audio_format != "flac" else 0
            self._deltas += 1
            delta = {
                "type": "speech.audio.delta",
                "audio": base64.b64encode(piece).decode(),
                "response_format": self._call.order.audio_format,
                "sample_rate": request.sample_rate,
                "channels": request.channels,
            }
            await send_event(send, delta, str(self._frames - behind) if exact else "")

    def _done(self) -> dict[str, Any]:
        call = self._call
        return {
            "type": "speech.audio.done",
            "usage": call.usage(self._frames),
            "duration_ms": round(self._frames * 1000 / call.order.request.sample_rate),
            "job_id": call.job,
            "seed": call.order.request.seed,
            "finish_reason": call.finish_reason,
        }


def pieces_of(data: bytes) -> Iterator[bytes]:
    """What fits into one event each."""
    for start in range(0, len(data), MAX_DELTA_BYTES):
        yield data[start : start + MAX_DELTA_BYTES]


async def send_event(send: Send, event: dict[str, Any], event_id: str = "") -> None:
    """`event` has its name under `type`."""
    head = f"id: {event_id}\n" if event_id else ""
    text = f"{head}event: {event['type']}\ndata: {json.dumps(event, separators=(',', ':'), ensure_ascii=False)}\n\n"
    await send({"type": "http.response.body", "body": text.encode(), "more_body": True})


async def send_keep_alive(send: Send) -> None:
    """A comment, so that nobody on the way takes the connection for dead."""
    await send({"type": "http.response.body", "body": b": keep-alive\n\n", "more_body": True})
