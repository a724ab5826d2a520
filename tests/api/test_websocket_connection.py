"""What WebSocket clients may do to a connection, over real sockets and apps that need no farm."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.server import ServerState
from websockets.asyncio.client import connect

from speechmill.api.http import connection
from speechmill.api.http.connection import Connection
from speechmill.api.realtime.connection import MAX_PONGS, WebSocketConnection

MUCH = 32 << 20
"""More than the system takes off a server's hands."""
HANDSHAKE = (
    b"GET /?api_key=sk-secret HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
PING = b"\x89\x80\0\0\0\0"
REASON = b"the client takes no messages"
CLOSED_1008 = bytes([0x88, 2 + len(REASON)]) + (1008).to_bytes(2, "big") + REASON
LONG = 20.0


@asynccontextmanager
async def serving(app: ASGIApp, **settings: Any) -> AsyncIterator[tuple[int, set[Any]]]:
    """Port, and the connections that are open."""
    config = uvicorn.Config(app, http=Connection, ws=WebSocketConnection, log_config=None, **settings)
    config.load()
    state = ServerState()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: Connection(config=config, server_state=state, app_state={}), "127.0.0.1", 0
    )
    try:
        yield server.sockets[0].getsockname()[1], state.connections
    finally:
        server.close()
        if state.tasks:
            await asyncio.wait(state.tasks, timeout=LONG)


def run(app: ASGIApp, talk: Callable[[int, set[Any]], Awaitable[None]], **settings: Any) -> None:
    async def main() -> None:
        async with serving(app, **settings) as (port, open_now):
            await asyncio.wait_for(talk(port, open_now), LONG)

    asyncio.run(main())


class Talker:
    """Sends so much that a client has to read, and notes how the connection ended."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        self.code = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "bytes": bytes(MUCH)})
        self.code = (await receive())["code"]
        self.ended.set()


async def upgraded(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A client that has not read anything after the handshake, and takes little without being read."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
    writer.write(HANDSHAKE)
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
    return reader, writer


async def gone(open_now: set[Any]) -> None:
    while open_now:  # noqa: ASYNC110  the server tells nobody
        await asyncio.sleep(0.01)


def test_a_client_that_takes_nothing_is_told_so_and_not_that_its_pong_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = Talker()

    async def talk(port: int, _: object) -> None:
        reader, writer = await upgraded(port)
        await app.ended.wait()
        received = b"".join([data async for data in _blocks(reader)])
        writer.close()
        assert app.code == 1008
        assert len(received) > MUCH
        assert received.endswith(CLOSED_1008)

    monkeypatch.setattr(WebSocketConnection, "stalled_s", 0.5)
    run(app, talk, ws_ping_interval=0.05, ws_ping_timeout=0.05)


async def _blocks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while data := await reader.read(1 << 20):
        yield data


def test_a_client_that_does_not_even_take_the_close_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    async def talk(port: int, open_now: set[Any]) -> None:
        _, writer = await upgraded(port)
        await gone(open_now)
        writer.close()

    monkeypatch.setattr(WebSocketConnection, "stalled_s", 0.1)
    run(Talker(), talk)


def test_a_client_that_asks_for_pongs_and_takes_none_is_cut_off() -> None:
    async def talk(port: int, open_now: set[Any]) -> None:
        _, writer = await upgraded(port)
        writer.write(PING * (MAX_PONGS + 1))
        await gone(open_now)
        writer.close()

    run(Talker(), talk)


async def late(scope: Scope, receive: Receive, send: Send) -> None:
    """Speaks when the time for a request's head is long over."""
    await receive()
    await send({"type": "websocket.accept"})
    await asyncio.sleep(0.3)
    await send({"type": "websocket.send", "text": "still here"})
    await receive()


def test_the_limits_of_a_request_end_with_the_handshake(monkeypatch: pytest.MonkeyPatch) -> None:
    async def talk(port: int, _: object) -> None:
        async with connect(f"ws://127.0.0.1:{port}/") as client:
            assert await client.recv() == "still here"

    monkeypatch.setattr(connection, "HEAD_S", 0.1)
    monkeypatch.setattr(Connection, "stalled_s", 0.1)
    run(late, talk)


async def endless(scope: Scope, receive: Receive, send: Send) -> None:
    """An answer that goes on until its client is gone. WebSockets are welcome."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.accept"})
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"begun", "more_body": True})
    while (await receive())["type"] != "http.disconnect":
        pass


def test_a_connection_that_is_being_answered_is_not_upgraded() -> None:
    async def talk(port: int, open_now: set[Any]) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b"begun")
        writer.write(HANDSHAKE)
        assert b"101" not in await reader.read()
        await gone(open_now)
        writer.close()

    run(endless, talk)


def test_neither_keys_nor_messages_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "text": (await receive())["text"]})
        await receive()

    async def talk(port: int, _: object) -> None:
        async with connect(f"ws://127.0.0.1:{port}/?api_key=sk-secret", logger=logging.getLogger("theirs")) as client:
            await client.send("private words")
            assert await client.recv() == "private words"

    caplog.set_level(logging.DEBUG)
    logging.getLogger("theirs").setLevel(logging.WARNING)
    run(app, talk)
    assert "sk-secret" not in caplog.text
    assert "private" not in caplog.text


@pytest.mark.parametrize(
    ("found", "sent", "status"),
    [(b"GET", b"POST", 405), (b"Version: 13", b"Version: 8", 400), (b"dGhlIHNhbXBsZSBub25jZQ==", b"c2hvcnQ=", 400)],
)
def test_a_handshake_that_is_none_is_answered_with_the_error_object(found: bytes, sent: bytes, status: int) -> None:
    async def talk(port: int, _: object) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HANDSHAKE.replace(found, sent))
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        assert head.startswith(b"HTTP/1.1 %d " % status)
        assert b"x-request-id: req_" in head.lower()
        assert set(json.loads(body)["error"]) == {"message", "type", "param", "code"}

    run(Talker(), talk)
