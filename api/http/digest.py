"""What makes two bodies the same: sorted JSON, or the parts of a form, whatever the bytes around them (§5.4.8)."""

import asyncio
import hashlib
import json
from typing import BinaryIO

from starlette.datastructures import UploadFile
from starlette.requests import Request

from speechmill.api.errors import ApiError
from speechmill.api.http.multipart import read_form

_READ_BYTES = 1 << 20
_MOST_PARTS = 64


async def body_digest(request: Request, file: BinaryIO, size_bytes: int) -> str:
    """SHA-256, hexadecimal. `file` holds the whole body, `request` brings it. What cannot be read counts as it is."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type == "multipart/form-data":
        try:
            return await _of_form(request, size_bytes)
        except ApiError:  # the route will say what is wrong with it
            pass
    return await asyncio.to_thread(_of_file, file, media_type == "application/json")


async def _of_form(request: Request, size_bytes: int) -> str:
    digest = hashlib.sha256()
    async with read_form(request, size_bytes, max_files=_MOST_PARTS, max_fields=_MOST_PARTS) as form:
        for name, value in form.multi_items():
            if isinstance(value, UploadFile):
                content = await asyncio.to_thread(_sha256, value.file)
                part = [name, value.filename, value.content_type, content]
            else:
                part = [name, value]
            digest.update(json.dumps(part).encode() + b"\n")
    return digest.hexdigest()


def _of_file(file: BinaryIO, is_json: bool) -> str:
    if is_json:
        file.seek(0)
        try:
            return hashlib.sha256(json.dumps(json.load(file), sort_keys=True).encode()).hexdigest()
        except (ValueError, RecursionError):
            pass
    return _sha256(file)


def _sha256(file: BinaryIO) -> str:
    file.seek(0)
    digest = hashlib.sha256()
    while data := file.read(_READ_BYTES):
        digest.update(data)
    return digest.hexdigest()
