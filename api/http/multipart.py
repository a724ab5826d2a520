"""Reading a multipart body safely: its size and time are bounded while it comes, and files are spooled to disk."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager

from starlette.datastructures import FormData, Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from speechmill.api.errors import ApiError

READ_S = 30.0
"""For the smallest body; each MiB that has come adds `PER_MIB_S`."""
PER_MIB_S = 1.0
FIELD_BYTES = 1 << 20
"""Longest text field."""
OVERHEAD_BYTES = 1 << 20
"""What a body may hold besides its file: fields, headers of parts, boundaries."""

# it quotes what it found in a broken body
logging.getLogger("python_multipart").setLevel(logging.CRITICAL)


@asynccontextmanager
async def read_form(
    request: Request, max_file_bytes: int, *, max_files: int = 1, max_fields: int = 16
) -> AsyncIterator[FormData]:
    """The fields and files of a multipart body; the files are closed behind the block.

    Raises ApiError 400 for a broken body and for a name that comes twice, 408 for a slow one, 413 `file_too_large` for
    one with more than `max_file_bytes` in a file, or much more than that in all, 415 for any other media type.
    """
    form = await _parse(request, max_file_bytes, max_files, max_fields)
    try:
        _check_parts(form, max_file_bytes)
        yield form
    finally:
        await form.close()


def text_field(form: FormData, name: str) -> str | None:
    """A field's text without space around it; None where it is missing or blank. A file in its place is an error."""
    value = form.get(name)
    if isinstance(value, UploadFile):
        raise ApiError(400, "invalid_type", f"{name} must be a text, not a file", name)
    return (value or "").strip() or None


def file_field(form: FormData, name: str) -> UploadFile | None:
    """An uploaded file. A text in its place is an error."""
    value = form.get(name)
    if isinstance(value, str):
        raise ApiError(400, "invalid_type", f"{name} must be a file", name)
    return value


def file_too_large(limit_bytes: int, param: str | None = None) -> ApiError:
    """413; the connection ends, for the rest of the body may not have been read."""
    error = ApiError(413, "file_too_large", f"the file is larger than {limit_bytes} bytes", param)
    error.headers = {"Connection": "close"}
    return error


def _check_parts(form: FormData, max_file_bytes: int) -> None:
    seen = set()
    for name, part in form.multi_items():
        if name in seen:
            raise ApiError(400, "invalid_value", "the multipart body has two parts of the same name", name)
        seen.add(name)
        if isinstance(part, UploadFile) and (part.size or 0) > max_file_bytes:
            raise file_too_large(max_file_bytes, name)


async def _parse(request: Request, max_file_bytes: int, max_files: int, max_fields: int) -> FormData:
    media_type, _, options = request.headers.get("content-type", "").partition(";")
    if media_type.strip().lower() != "multipart/form-data":
        raise ApiError(415, "unsupported_media_type", "send the body as multipart/form-data")
    limit = max_file_bytes * max_files + OVERHEAD_BYTES
    if int(request.headers.get("content-length") or 0) > limit:
        raise file_too_large(max_file_bytes)
    try:
        async with asyncio.timeout(READ_S) as deadline:
            parser = _Parser(
                Headers({"content-type": f"multipart/form-data;{_boundary_only(options)}"}),
                _whole(_bounded(request, limit, max_file_bytes, deadline), lambda: parser.ended),
                max_files=max_files,
                max_fields=max_fields,
                max_part_size=FIELD_BYTES,
            )
            return await parser.parse()
    except TimeoutError:
        late = ApiError(408, "request_timeout", "the body did not arrive in time")
        late.headers = {"Connection": "close"}
        raise late from None
    except ClientDisconnect:
        raise ApiError(400, "invalid_value", "the body ended early") from None
    except MultiPartException as broken:
        error = ApiError(400, "invalid_value", f"the multipart body cannot be read: {broken.message}")
        error.headers = {"Connection": "close"}
        raise error from None


def _boundary_only(options: str) -> str:
    """A charset of the client's choice would decide how fields are decoded; they are UTF-8."""
    return ";".join(option for option in options.split(";") if option.strip().lower().startswith("boundary="))


class _Parser(MultiPartParser):
    """Knows whether it has seen the last boundary."""

    ended = False

    def on_end(self) -> None:
        self.ended = True


async def _whole(body: AsyncGenerator[bytes, None], ended: Callable[[], bool]) -> AsyncGenerator[bytes, None]:
    """The body; the parser itself would take one that ends in the middle, and leave its files open."""
    async for part in body:
        yield part
    if not ended():
        raise MultiPartException("it ends early")


async def _bounded(
    request: Request, limit: int, max_file_bytes: int, deadline: asyncio.Timeout
) -> AsyncGenerator[bytes, None]:
    began, size = asyncio.get_running_loop().time(), 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise file_too_large(max_file_bytes)
        deadline.reschedule(began + READ_S + PER_MIB_S * size / (1 << 20))
        yield part
