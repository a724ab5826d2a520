"""Reading a JSON body safely: size, type, depth and duplicate keys are checked before anything is believed."""

import asyncio
import json
import re
from collections.abc import Iterator
from math import isfinite, isnan, nan
from typing import Any

from starlette.requests import ClientDisconnect, Request

from speechmill.api.errors import ApiError
from speechmill.api.speech.schemas import INT64

MAX_DEPTH = 32
MAX_VALUES = 100_000
"""Commas and brackets: millions of small values would keep the event loop busy for seconds."""
LONG_BYTES = 1 << 20
"""Longer bodies are parsed beside the event loop."""
READ_S = 30.0
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if not all(map(_is_unicode, fields)):
        raise ApiError(400, "invalid_json", "a key holds half a surrogate pair")
    if len(fields) != len(pairs):
        raise ApiError(400, "invalid_json", "the body has the same key twice")
    return fields


def _is_unicode(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def _depth(value: Any) -> int:
    """Levels of nesting; iterative, so that a deep body cannot exhaust the stack."""
    deepest, level = 0, [value]
    while level:
        deepest += 1
        if deepest > MAX_DEPTH:
            return deepest
        level = [
            child
            for node in level
            if isinstance(node, dict | list)
            for child in (node.values() if isinstance(node, dict) else node)
        ]
    return deepest


def _numbers(value: Any) -> Iterator[int | float]:
    """Every number in a value that is not nested too deeply."""
    if isinstance(value, int | float):
        yield value
    elif isinstance(value, dict | list):
        for child in value.values() if isinstance(value, dict) else value:
            yield from _numbers(child)


def _check_number(number: int | float, field: str) -> None:
    whole = isinstance(number, int)
    if not whole and isnan(number):
        raise ApiError(400, "invalid_value", f"{field} holds NaN or an infinity", field)
    if not (-INT64 <= number < INT64 if whole else isfinite(number)):
        raise ApiError(400, "invalid_type", f"{field} holds a number beyond 64 bits", field)


def _no_number(_: str) -> float:
    """NaN and the infinities, which are not JSON but which Python's clients write."""
    return nan


async def _bytes(request: Request, limit: int) -> bytes:
    too_large = ApiError(413, "request_too_large", f"the body is larger than {limit} bytes")
    too_large.headers = {"Connection": "close"}
    if int(request.headers.get("content-length") or 0) > limit:
        raise too_large
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise too_large
        parts.append(part)
    return b"".join(parts)


def media_type(request: Request) -> str:
    """Of the body, in lower case and without parameters; "" where none is declared."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def wants(request: Request, kind: str) -> bool:
    """Whether the client names a media type among those that it accepts, and does not refuse it with `q=0`."""
    for asked in request.headers.get("accept", "").lower().split(","):
        name, *parameters = (part.strip() for part in asked.split(";"))
        if name == kind:
            return not any(re.fullmatch(r"q\s*=\s*0(\.0*)?", parameter) for parameter in parameters)
    return False


async def read_object(request: Request, limit: int, most_values: int = MAX_VALUES) -> dict[str, Any]:
    """The body as a JSON object. Raises ApiError 400, 408, 413 or 415."""
    if media_type(request) != "application/json":
        raise ApiError(415, "unsupported_media_type", "send the body as application/json")
    try:
        raw = await asyncio.wait_for(_bytes(request, limit), READ_S)
    except TimeoutError:
        late = ApiError(408, "request_timeout", "the body did not arrive in time")
        late.headers = {"Connection": "close"}
        raise late from None
    except ClientDisconnect:
        raise ApiError(400, "invalid_json", "the body ended early") from None
    return await parse_long_object(raw, most_values)


async def parse_long_object(raw: bytes, most_values: int = MAX_VALUES) -> dict[str, Any]:
    """`parse_object`, beside the event loop where it may take long. Raises ApiError 400."""
    if len(raw) <= LONG_BYTES:
        return parse_object(raw, most_values)
    return await asyncio.to_thread(parse_object, raw, most_values)


async def read_optional_object(request: Request, limit: int) -> dict[str, Any]:
    """The same of a body that may be left out, which is an empty object. Raises as `read_object`."""
    has_body = request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers
    return await read_object(request, limit) if has_body else {}


def parse_object(raw: bytes, most_values: int = MAX_VALUES) -> dict[str, Any]:
    """A JSON object. Raises ApiError 400."""
    if sum(map(raw.count, (b",", b"[", b"{"))) > most_values:
        raise ApiError(400, "invalid_json", f"the body has more than {most_values} values")
    try:
        body = json.loads(raw.decode("utf-8-sig"), object_pairs_hook=_unique, parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise ApiError(400, "invalid_json", "the body is not valid JSON") from None
    if not isinstance(body, dict):
        raise ApiError(400, "invalid_json", "the body must be a JSON object")
    if _depth(body) > MAX_DEPTH:
        raise ApiError(400, "invalid_json", f"the body is nested deeper than {MAX_DEPTH} levels")
    for name, value in body.items():
        for number in _numbers(value):
            _check_number(number, name)
    return _whole_characters(body) if _SURROGATE.search(raw) else body


def _whole_characters(body: dict[str, Any]) -> dict[str, Any]:
    """Without lone halves of surrogate pairs, which nothing behind can encode."""
    whole: dict[str, Any] = json.loads(json.dumps(body, ensure_ascii=False).encode("utf-8", "ignore"))
    return whole
