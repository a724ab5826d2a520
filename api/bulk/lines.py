"""Bodies and objects that are read line by line, because they may be longer than memory should hold."""

import asyncio
from collections.abc import AsyncIterator
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request

from speechmill.api.errors import ApiError

NDJSON = "application/x-ndjson"
BODY_BYTES = 200 << 20
READ_S = 30.0
"""Longest wait for the next piece of a body."""
T = TypeVar("T")


async def lines_of(pieces: AsyncIterator[bytes], most_bytes: int) -> AsyncIterator[bytes]:
    """Lines with their ends; the last one may have none. Raises ApiError 413 for one of more than `most_bytes`."""
    parts: list[bytes] = []
    size = 0
    async for piece in pieces:
        *whole, rest = piece.split(b"\n")
        for line in whole:
            yield b"".join((*parts, line, b"\n"))
            parts, size = [], 0
        parts.append(rest)
        size += len(rest)
        if size > most_bytes:
            raise ApiError(413, "request_too_large", f"a line is longer than {most_bytes} bytes")
    if size:
        yield b"".join(parts)


async def body_of(request: Request) -> AsyncIterator[bytes]:
    """The pieces of a body. Raises ApiError 400 where it ends early, 408 where no more comes, and 413."""
    pieces, size = request.stream(), 0
    while True:
        try:
            piece = await asyncio.wait_for(anext(pieces, None), READ_S)
        except TimeoutError:
            raise _closing(ApiError(408, "request_timeout", "the body did not arrive in time")) from None
        except ClientDisconnect:
            raise ApiError(400, "invalid_json", "the body ended early") from None
        if piece is None:
            return
        size += len(piece)
        if size > BODY_BYTES:
            raise _closing(ApiError(413, "request_too_large", f"the body is larger than {BODY_BYTES} bytes"))
        yield piece


def _closing(error: ApiError) -> ApiError:
    error.headers = {"Connection": "close"}
    return error


async def by_the(count: int, things: AsyncIterator[T]) -> AsyncIterator[list[T]]:
    """Lists of `count`, the last one shorter."""
    some: list[T] = []
    async for thing in things:
        some.append(thing)
        if len(some) == count:
            yield some
            some = []
    if some:
        yield some
