"""A request's body that can be read twice, and an answer that is written down while it is sent."""

import asyncio
import logging
import tempfile
from typing import Any, BinaryIO, cast

from starlette.types import Message, Receive, Send

from speechmill.api.errors import ApiError

log = logging.getLogger(__name__)
SPOOL_BYTES = 1 << 20
READ_BYTES = 256 << 10
READ_S = 30.0
"""For the smallest body; each MiB that has come adds `PER_MIB_S`."""
PER_MIB_S = 1.0


class Body:
    """What has come of a body, on disk where it is long."""

    def __init__(self) -> None:
        self.file = cast(BinaryIO, tempfile.SpooledTemporaryFile(SPOOL_BYTES))  # noqa: SIM115  closed by `close`
        self.whole = True
        self.size_bytes = 0

    async def take(self, receive: Receive, limit: int) -> None:
        """Read up to about `limit` bytes; `whole` tells whether that was all. Raises ApiError 400, 408."""
        began = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(READ_S) as deadline:
                while (message := await receive())["type"] == "http.request":
                    self.size_bytes += self.file.write(message.get("body", b""))
                    self.whole = not message.get("more_body", False)
                    if self.whole or self.size_bytes > limit:
                        return
                    deadline.reschedule(began + READ_S + PER_MIB_S * self.size_bytes / (1 << 20))
        except TimeoutError:
            late = ApiError(408, "request_timeout", "the body did not arrive in time")
            late.headers = {"Connection": "close"}
            raise late from None
        raise ApiError(400, "invalid_value", "the body ended early")

    def again(self, rest: Receive) -> Receive:
        """The body once more; `rest` brings what has not been read of it."""
        self.file.seek(0)
        ended = False

        async def receive() -> Message:
            nonlocal ended
            if ended:
                return await rest()
            data = self.file.read(READ_BYTES)
            ended = len(data) < READ_BYTES
            return {"type": "http.request", "body": data, "more_body": not (ended and self.whole)}

        return receive

    def close(self) -> None:
        self.file.close()


class Recorder:
    """Passes an answer on to a client who may have left, and keeps all of it but its end, up to a size."""

    def __init__(self, send: Send, most_bytes: int) -> None:
        self.start: Message = {}
        self.body = cast(BinaryIO, tempfile.SpooledTemporaryFile(SPOOL_BYTES))  # noqa: SIM115  closed by `close`
        self.fits = True
        self.ended = False
        self._send = send
        self._most_bytes = most_bytes
        self._gone = False

    async def send(self, message: Message) -> None:
        """The last message waits for `finish`, so that nobody can ask again before the answer is kept."""
        if message["type"] == "http.response.start":
            self.start = message
        elif message["type"] == "http.response.body":
            self._keep(message.get("body", b""))
            if not message.get("more_body", False):
                self.ended = True
                message = {**message, "more_body": True}
        await self._pass_on(message)

    async def finish(self) -> None:
        await self._pass_on({"type": "http.response.body", "body": b"", "more_body": False})

    def _keep(self, data: bytes) -> None:
        self.fits = self.fits and self.body.tell() + len(data) <= self._most_bytes
        if self.fits:
            self.body.write(data)

    async def _pass_on(self, message: dict[str, Any] | Message) -> None:
        if self._gone:
            return
        try:
            await self._send(message)
        except OSError:  # the job is worked on, and its answer kept, for whoever asks again
            self._gone = True

    def close(self) -> None:
        self.body.close()
