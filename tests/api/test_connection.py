"""What clients may do to a connection, over real sockets and an app that answers at once."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.server import ServerState

from speechmill.api.http import connection
from speechmill.api.http.connection import HEAD_BYTES, Connection
from speechmill.api.http.middleware import LastResort, RequestId

MUCH = 64 << 20
"""More than the system takes off a server's hands."""


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    """Reads the body, then says hello."""
    while (message := await receive()).get("more_body"):
        pass
    if message["type"] == "http.request":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
        await send({"type": "http.response.body", "body": b"hello"})


async def much(scope: Scope, receive: Receive, send: Send) -> None:
    """Sends more than a client can take at once."""
    length = str(MUCH).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
    await send({"type": "http.response.body", "body": bytes(MUCH)})


@asynccontextmanager
async def serving(app: ASGIApp) -> AsyncIterator[tuple[int, set[object]]]:
    """Port, and the connections that are open."""
    config, state = (
        uvicorn.Config(app, http=Connection, log_config=None, access_log=False, server_header=False),
        ServerState(),
    )
    config.load()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: Connection(config=config, server_state=state, app_state={}), "127.0.0.1", 0
    )
    yield server.sockets[0].getsockname()[1], state.connections  # type: ignore[misc]
    server.close()
    await server.wait_closed()


async def ask(port: int, *pieces: bytes) -> bytes:
    """Everything that is answered until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = b""
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        answer = await asyncio.wait_for(reader.read(), 10)
    except ConnectionError:
        pass
    finally:
        writer.close()
    return answer


def run(app: ASGIApp, talk: Callable[[int], object]) -> bytes:
    async def main() -> bytes:
        async with serving(app) as (port, _):
            return await talk(port)  # type: ignore[misc,no-any-return]

    return asyncio.run(main())


def error_of(answer: bytes, status: int) -> str:
    """Code of the error object in an answer that is complete, has a request id and ends the connection."""
    head, _, body = answer.partition(b"\r\n\r\n")
    lines = head.decode().lower().split("\r\n")
    assert lines[0].startswith(f"http/1.1 {status} ")
    assert "connection: close" in lines
    assert any(line.startswith("x-request-id: req_") for line in lines)
    assert f"content-length: {len(body)}" in lines
    code: str = json.loads(body)["error"]["code"]
    return code


@pytest.mark.parametrize(
    "nonsense",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"FOO / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: x\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: many\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_what_is_no_http_is_answered_with_the_error_object(nonsense: bytes) -> None:
    assert error_of(run(hello, lambda port: ask(port, nonsense)), 400) == "invalid_value"


@pytest.mark.parametrize("endless", [b"a" * 65_536, b"a: b\r\n" * 10_000])
def test_a_head_without_end_is_refused_before_it_fills_the_memory(endless: bytes) -> None:
    start = b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: "
    answer = run(hello, lambda port: ask(port, start, *[endless] * (4 * HEAD_BYTES // len(endless) + 2)))
    assert not answer or error_of(answer, 413) == "request_too_large"


def test_trailers_without_end_are_refused_too() -> None:
    start = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX-Long: "
    answer = run(hello, lambda port: ask(port, start, *[b"a" * HEAD_BYTES] * 12))
    assert not answer or error_of(answer, 413) == "request_too_large"


def test_a_long_head_and_a_long_body_in_small_pieces_are_fine() -> None:
    head = b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Long: " + b"a" * (HEAD_BYTES // 2)
    body = b"b" * (4 * HEAD_BYTES)
    pieces = [
        head,
        b"\r\nContent-Length: %d\r\n\r\n" % len(body),
        *(body[at : at + 999] for at in range(0, len(body), 999)),
    ]
    assert run(hello, lambda port: ask(port, *pieces)).endswith(b"\r\n\r\nhello")


@pytest.mark.parametrize(
    ("begun", "code"),
    [(b"", None), (b"GET / HT", "request_timeout"), (b"GET / HTTP/1.1\r\nHost: x\r\n", "request_timeout")],
)
def test_a_connection_on_which_no_request_comes_is_closed(
    monkeypatch: pytest.MonkeyPatch, begun: bytes, code: str | None
) -> None:
    monkeypatch.setattr(connection, "HEAD_S", 0.2)
    answer = run(hello, lambda port: ask(port, begun))
    assert error_of(answer, 408) == code if code else answer == b""


def test_what_is_left_of_an_answered_request_may_not_take_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 404, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"no"})

    async def drip(port: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nx")
        assert (await reader.readuntil(b"no")).startswith(b"HTTP/1.1 404")
        writer.write(b"x")
        rest = await asyncio.wait_for(reader.read(), 5)
        writer.close()
        return rest

    monkeypatch.setattr(connection, "HEAD_S", 0.2)
    assert run(at_once, drip) == b""


async def soon(true: Callable[[], bool]) -> bool:
    for _ in range(500):
        if true():
            break
        await asyncio.sleep(0.01)
    return true()


def _connect(port: int) -> socket.socket:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    client.connect(("127.0.0.1", port))
    client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    client.setblocking(False)
    return client


def test_a_client_that_takes_nothing_is_cut_off_although_its_answer_is_complete(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        async with serving(much) as (port, connections):
            with _connect(port):
                assert await soon(lambda: len(connections) == 1)
                assert await soon(lambda: not connections)

    monkeypatch.setattr(Connection, "stalled_s", 0.2)
    asyncio.run(main())


def test_a_slow_client_gets_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> int:
        async with serving(much) as (port, _):
            with _connect(port) as client:
                taken, loop = 0, asyncio.get_running_loop()
                until = loop.time() + 1.5
                while data := await loop.sock_recv(client, 1 << 20 if loop.time() > until else 65_536):
                    taken += len(data)
                    if loop.time() < until:
                        await asyncio.sleep(0.05)
                return taken

    monkeypatch.setattr(Connection, "stalled_s", 0.5)
    assert asyncio.run(main()) > MUCH


def test_a_fault_that_nobody_foresaw_is_an_error_object_with_a_request_id_and_says_nothing_of_the_text(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        raise RuntimeError("secret text")

    question = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    answer = run(RequestId(LastResort(broken)), lambda port: ask(port, question))
    assert error_of(answer, 500) == "internal_error"
    assert "request failed" in caplog.text
    assert "secret" not in caplog.text
