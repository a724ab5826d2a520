"""Bodies that are meant to hurt."""

import asyncio
import time

import pytest
from starlette.requests import Request
from starlette.types import Message

from speechmill.api.errors import ApiError, respond
from speechmill.api.http import body
from speechmill.api.http.body import read_object
from speechmill.api.speech.schemas import SpeechBody
from speechmill.api.speech.validate import MAX_NAME, parse, unknown_fields

LIMIT = 16 << 20


def read(raw: bytes) -> dict[str, object]:
    async def receive() -> Message:
        return {"type": "http.request", "body": raw, "more_body": False}

    scope = {"type": "http", "method": "POST", "headers": [(b"content-type", b"application/json")]}
    return asyncio.run(read_object(Request(scope, receive), LIMIT))


@pytest.mark.parametrize(
    "raw",
    [
        '{"input": "Hi"}'.encode("utf-16"),
        b'{"input": "\xed\xa0\x80"}',
        b'{"input": "Hi", "\\ud800": 1}',
        b'{"input": "Hi", "metadata": {"\\udfff": 1}}',
        b'{"input": "Hi", "seed": ' + b"9" * 5000 + b"}",
        b'{"input": "Hi", "x": [' + b"[]," * 200_000 + b"[]]}",
        b'{"input": "Hi", "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_what_is_no_sane_utf8_json_is_refused_at_once(raw: bytes) -> None:
    began = time.monotonic()
    with pytest.raises(ApiError) as caught:
        read(raw)
    assert (caught.value.status, caught.value.code) == (400, "invalid_json")
    assert time.monotonic() - began < 1


@pytest.mark.parametrize("raw", [b'\xef\xbb\xbf{"input": "Hi"}', '{"input": "Hi \U0001f600", "ключ": 1}'.encode()])
def test_utf8_of_any_kind_is_fine(raw: bytes) -> None:
    assert str(read(raw)["input"]).startswith("Hi")


def test_a_body_that_does_not_come_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    async def receive() -> Message:
        await asyncio.sleep(10)
        raise AssertionError

    monkeypatch.setattr(body, "READ_S", 0.05)
    scope = {"type": "http", "method": "POST", "headers": [(b"content-type", b"application/json")]}
    with pytest.raises(ApiError) as caught:
        asyncio.run(read_object(Request(scope, receive), LIMIT))
    assert (caught.value.status, respond(caught.value).headers["connection"]) == (408, "close")


def test_names_without_end_are_not_sent_back_in_full() -> None:
    wanted = parse(SpeechBody, {"input": "Hi", "k" * 100_000: 1})
    assert unknown_fields(wanted, strict=False) == ("k" * MAX_NAME,)
    with pytest.raises(ApiError) as caught:
        unknown_fields(wanted, strict=True)
    assert len(str(caught.value)) < 2 * MAX_NAME
