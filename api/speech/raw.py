"""Bytes of the format while they are made (speech_api §1.5)."""

import asyncio

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from speechmill.api.errors import ApiError, StreamBroken
from speechmill.api.speech.buffered import beside
from speechmill.api.speech.call import ClientGone, SpeechCall
from speechmill.infra.encode import encoder
from speechmill.infra.messages import LogChunk

STREAM_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class RawStream(Response):
    """A failure after the first byte cuts the connection, so that no client takes a part for the whole."""

    def __init__(self, call: SpeechCall, first: LogChunk) -> None:
        self.status_code = 200
        self.init_headers({**call.headers(), **STREAM_HEADERS})
        del self.headers["content-length"]
        self.background = None
        self._call, self._first = call, first

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        call = self._call
        request = call.order.request
        making = encoder(call.order.audio_format, request.sample_rate, request.channels)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            chunk = self._first
            while chunk.trailer is None:
                await _send(send, await beside(call.order, making.feed, chunk.payload))
                chunk = await call.next()
            await _send(send, await beside(call.order, making.finish))
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            call.observe(200)
        except (ClientGone, OSError):
            call.observe(499)
        except ApiError as error:
            call.observe(error.status)
            raise StreamBroken(f"{call.job}: {error.code}") from None
        finally:
            await asyncio.shield(call.close())


async def _send(send: Send, data: bytes) -> None:
    if data:
        await send({"type": "http.response.body", "body": data, "more_body": True})
