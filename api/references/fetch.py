"""Fetching a reference clip from a URL without being turned against our own network (speech_api §6.1)."""

import asyncio
from dataclasses import dataclass

import httpcore
import httpx

from speechmill.api.errors import ApiError
from speechmill.infra.addresses import AddressPolicy, Forbidden
from speechmill.infra.pinned import pinned_pool

MAX_REDIRECTS = 3
CONNECT_S = 3.0
IDLE_S = 5.0
TOTAL_S = 10.0
_REDIRECTS = (301, 302, 303, 307, 308)
_HEADERS = [("User-Agent", "speechmill"), ("Accept", "audio/*, */*;q=0.5"), ("Accept-Encoding", "identity")]


@dataclass(frozen=True, slots=True)
class Validators:
    """What the server needs to tell whether the content has changed since."""

    url: str
    """Where it was in the end, behind all redirects."""
    etag: str
    last_modified: str


@dataclass(frozen=True, slots=True)
class Fetched:
    content: bytes
    validators: Validators


class _TooLarge(Exception):
    pass


class _Failed(Exception):
    """The text may be shown to the caller."""


async def fetch(
    url: str, policy: AddressPolicy, limit_bytes: int, known: Validators | None = None, param: str = "ref_audio"
) -> Fetched | None:
    """The content behind a URL; None if it has not changed since `known`.

    At most `TOTAL_S` seconds and `limit_bytes` bytes. Raises ApiError 400 `ref_audio_forbidden`,
    `ref_audio_fetch_failed` or `ref_audio_too_large`, none of which tells what was found at the address.
    """
    try:
        async with asyncio.timeout(TOTAL_S):
            return await _follow(url, policy, limit_bytes, known)
    except Forbidden as error:
        raise ApiError(400, "ref_audio_forbidden", f"{param}: {error}", param) from None
    except _TooLarge:
        raise ApiError(400, "ref_audio_too_large", f"{param} is larger than {limit_bytes} bytes", param) from None
    except _Failed as error:
        raise ApiError(400, "ref_audio_fetch_failed", f"{param}: {error}", param) from None
    except (TimeoutError, httpcore.TimeoutException):
        raise ApiError(400, "ref_audio_fetch_failed", f"{param}: the server took too long", param) from None
    except (OSError, httpcore.NetworkError, httpcore.ProtocolError):
        raise ApiError(400, "ref_audio_fetch_failed", f"{param}: the server could not be reached", param) from None


async def _follow(text: str, policy: AddressPolicy, limit_bytes: int, known: Validators | None) -> Fetched | None:
    url = policy.check_url(text)
    for _ in range(MAX_REDIRECTS + 1):
        found = await _exchange(url, policy, limit_bytes, known)
        if not isinstance(found, httpx.URL):
            return found
        following = policy.check_url(str(found))
        if url.scheme == "https" and following.scheme == "http":
            raise Forbidden("a redirect leads from https to http")
        url = following
    raise _Failed(f"there are more than {MAX_REDIRECTS} redirects")


async def _exchange(
    url: httpx.URL, policy: AddressPolicy, limit_bytes: int, known: Validators | None
) -> Fetched | httpx.URL | None:
    """One request and its answer, or where it sends us, or None for content that is still the same."""
    known = known if known is not None and known.url == str(url) else None
    target = httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
    timeout = {"connect": CONNECT_S, "read": IDLE_S, "write": IDLE_S, "pool": CONNECT_S}
    async with (
        pinned_pool(await policy.addresses(url)) as pool,
        pool.stream("GET", target, headers=_headers(url, known), extensions={"timeout": timeout}) as response,
    ):
        headers = httpx.Headers(response.headers)
        if response.status in _REDIRECTS:
            return _location(url, headers)
        if response.status == 304 and known is not None:
            return None
        if response.status != 200:
            raise _Failed("the server did not answer with status 200")
        if headers.get("content-encoding", "identity").strip().lower() != "identity":
            raise _Failed("the server sent an encoding that was not asked for")
        content = await _read(response, headers, limit_bytes)
        etag, last_modified = (headers.get(name, "") for name in ("etag", "last-modified"))
        return Fetched(content, Validators(str(url), _ascii(etag), _ascii(last_modified)))


def _headers(url: httpx.URL, known: Validators | None) -> list[tuple[str, str]]:
    headers = [("Host", url.netloc.decode("ascii")), *_HEADERS]
    if known is not None and known.etag:
        headers.append(("If-None-Match", known.etag))
    if known is not None and known.last_modified:
        headers.append(("If-Modified-Since", known.last_modified))
    return headers


def _ascii(value: str) -> str:
    """What could not be sent back as it came is as good as missing."""
    return value if value.isascii() else ""


def _location(url: httpx.URL, headers: httpx.Headers) -> httpx.URL:
    try:
        return url.join(headers["location"])
    except (KeyError, httpx.InvalidURL):
        raise _Failed("the server redirects to nowhere") from None


async def _read(response: httpcore.Response, headers: httpx.Headers, limit_bytes: int) -> bytes:
    """The body, never more than one byte beyond the limit."""
    length = headers.get("content-length", "")
    if length.isdecimal() and int(length) > limit_bytes:
        raise _TooLarge
    content = bytearray()
    async for part in response.aiter_stream():
        content += part[: limit_bytes + 1 - len(content)]
        if len(content) > limit_bytes:
            raise _TooLarge
    return bytes(content)
