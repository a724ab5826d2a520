"""Lines of what comes in pieces are the lines of the whole."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechmill.api.bulk.lines import by_the, lines_of
from speechmill.api.errors import ApiError


async def each(pieces: list[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


def lines(pieces: list[bytes], most_bytes: int = 1 << 20) -> list[bytes]:
    async def read() -> list[bytes]:
        return [line async for line in lines_of(each(pieces), most_bytes)]

    return asyncio.run(read())


@given(st.lists(st.text("ab\r\n", max_size=8).map(str.encode), max_size=8))
def test_where_the_pieces_are_cut_makes_no_difference(pieces: list[bytes]) -> None:
    whole = b"".join(pieces)
    found = lines(pieces)
    assert b"".join(found) == whole
    assert all(line.count(b"\n") <= 1 and line for line in found)
    assert all(line.endswith(b"\n") for line in found[:-1])


def test_a_line_that_does_not_end_is_refused() -> None:
    assert lines([b"ab", b"cd\n"], 3) == [b"abcd\n"]
    with pytest.raises(ApiError) as refused:
        lines([b"ab", b"cd", b"\n"], 3)
    assert (refused.value.status, refused.value.code) == (413, "request_too_large")


@given(st.lists(st.binary(max_size=1), max_size=9), st.integers(1, 4))
def test_lists_hold_everything_in_order(things: list[bytes], count: int) -> None:
    async def read() -> list[list[bytes]]:
        return [some async for some in by_the(count, each(things))]

    found = asyncio.run(read())
    assert [thing for some in found for thing in some] == things
    assert all(len(some) == count for some in found[:-1])
    assert all(found)
