"""One TCP connection of a client that may be slow, broken or hostile: what uvicorn itself does not limit."""

import asyncio
import base64
import socket
from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.responses import Response
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from speechmill.api.errors import ApiError, respond
from speechmill.infra.keys import new_id

HEAD_BYTES = 32 << 10
LINE_BYTES = 4
"""What stands around each name and value of a head."""
HEAD_S = 10.0
"""How long a request's head may take, or what is left of the body of a request that is answered already."""

SEND_BYTES = 128 << 10
"""What the system holds for a client. Megabytes, its default, would make a listener who hears speech in real time look
like one who takes nothing."""


class Connection(HttpToolsProtocol):
    """Bounds heads in size and time, answers what is no HTTP like any other error, and cuts off who takes nothing."""

    stalled_s = 60.0
    _head_timer: asyncio.TimerHandle | None = None
    _stall_timer: asyncio.TimerHandle | None = None
    _unparsed = 0
    """Bytes since the parser last made something of them."""
    _in_head = True
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # whatever the system does not take counts as not taken
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timers()
        super().connection_lost(exc)

    def _stop_timers(self) -> None:
        for timer in (self._head_timer, self._stall_timer):
            if timer is not None:
                timer.cancel()

    def handle_websocket_upgrade(self) -> None:
        """Another protocol takes over, and must not find us still at work."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._refuse(ApiError(400, "invalid_value", "an answer is under way still on this connection"))
            return
        if fault := _handshake_fault(self.scope["method"], Headers(raw=self.headers)):
            self._refuse(fault)
            return
        self._stop_timers()
        super().handle_websocket_upgrade()

    # -- what comes in ----------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._head_timer is None and (self.cycle is None or self.cycle.response_complete):
            self._await_head()
        self._unparsed += len(data)
        super().data_received(data)
        if self._unparsed > HEAD_BYTES and not self.transport.is_closing():
            self._refuse(_head_too_large())

    def on_message_begin(self) -> None:
        self._in_head, self._head_bytes = True, 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count_head(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count_head(name + value)
        if self._in_head:  # else a trailer, which nobody here has a use for
            super().on_header(name, value)

    def _count_head(self, part: bytes) -> None:
        self._head_bytes += len(part) + LINE_BYTES
        if self._head_bytes > HEAD_BYTES:
            raise ValueError  # ends the parsing, as whatever is no HTTP does

    def on_headers_complete(self) -> None:
        self._in_head, self._unparsed = False, 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unparsed = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unparsed = 0
        super().on_message_complete()

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_S, self._head_is_late)

    def _head_is_late(self) -> None:
        begun = self._in_head and self._unparsed
        if self.transport.is_closing():
            return
        if begun:
            self._refuse(ApiError(408, "request_timeout", "the request did not arrive in time"))
        else:
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        too_large = self._head_bytes > HEAD_BYTES
        self._refuse(_head_too_large() if too_large else ApiError(400, "invalid_value", "this is not HTTP/1.1"))

    def _refuse(self, error: ApiError) -> None:
        """Answer below ASGI, unless another answer is under way, and close."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete or not (cycle.response_started or self.pipeline):
            self.transport.write(_wire(respond(error)))
        if cycle is not None:
            cycle.disconnected = not cycle.response_complete
            cycle.message_event.set()
        self.transport.close()

    # -- what goes out ----------------------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_progress(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def _watch_progress(self, waiting: int) -> None:
        self._stall_timer = self.loop.call_later(self.stalled_s, self._has_moved, waiting)

    def _has_moved(self, before: int) -> None:
        waiting = self.transport.get_write_buffer_size()
        if waiting >= before:
            self.transport.abort()  # closing would wait for the client
        else:
            self._watch_progress(waiting)


def _head_too_large() -> ApiError:
    return ApiError(413, "request_too_large", f"the request's head is larger than {HEAD_BYTES} bytes")


def _handshake_fault(method: str, headers: Headers) -> ApiError | None:
    """What is wrong with a request for a WebSocket (RFC 6455 §4.2.1); uvicorn would say so in plain text."""
    if method != "GET":
        error = ApiError(405, "method_not_allowed", "a WebSocket is opened with GET")
        error.headers = {"Allow": "GET"}
        return error
    if headers.get("sec-websocket-version") != "13":
        error = ApiError(400, "invalid_value", "only version 13 of WebSockets is spoken here")
        error.headers = {"Sec-WebSocket-Version": "13"}
        return error
    try:
        key = base64.b64decode(headers.get("sec-websocket-key", ""), validate=True)
    except ValueError:
        key = b""
    return None if len(key) == 16 else ApiError(400, "invalid_value", "Sec-WebSocket-Key must be 16 bytes in base64")


def _wire(response: Response) -> bytes:
    """An answer as it goes over the connection, which ends with it."""
    response.headers["X-Request-Id"] = new_id("req")
    response.headers["Connection"] = "close"
    status = HTTPStatus(response.status_code)
    lines = [f"HTTP/1.1 {status.value} {status.phrase}".encode()]
    lines += [b"%b: %b" % header for header in response.raw_headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + bytes(response.body)
