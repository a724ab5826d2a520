"""Files in OpenAI's shape (speech_api §5.2): input of batches, and reference audio by id."""

import time
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal, cast
from urllib.parse import quote

from fastapi import APIRouter, Depends, Path, Query, Request
from starlette.datastructures import FormData, UploadFile
from starlette.responses import Response, StreamingResponse

from speechmill.api.callers import Caller, needs
from speechmill.api.errors import ApiError
from speechmill.api.farm import FarmState
from speechmill.api.http.form_fields import form_schema
from speechmill.api.http.multipart import file_field, file_too_large, read_form, text_field
from speechmill.api.http.ranges import parse_range, stored_bytes
from speechmill.infra import files
from speechmill.infra.files import FileRecord
from speechmill.infra.objects import ObjectMissing

router = APIRouter(tags=["files"])
FileId = Annotated[str, Path(description="Id of an uploaded file.", examples=["file-01JEXAMPLE"])]
MAX_BYTES = {"batch": 200 << 20, "user_data": 512 << 20}
"""By purpose."""
BATCH_EXPIRES_S = 30 * 86_400
EXPIRES_S = range(3_600, 2_592_001)
MAX_FILENAME = 255
_MEDIA_TYPE = "application/octet-stream"
_EXPIRY: dict[str, dict[str, Any]] = {
    "expires_after[anchor]": {
        "enum": ["created_at"],
        "description": "What the seconds count from.",
        "examples": ["created_at"],
    },
    "expires_after[seconds]": {
        "type": "integer",
        "minimum": EXPIRES_S[0],
        "maximum": EXPIRES_S[-1],
        "description": "When the file may go.",
        "examples": [86400],
    },
}
FORM = form_schema(
    required=("file", "purpose"),
    file={"format": "binary", "description": "The bytes to keep."},
    purpose={"enum": list(MAX_BYTES), "description": "`user_data`: references.", "examples": ["user_data"]},
    **_EXPIRY,
)
FilesCaller = Annotated[Caller, Depends(needs("files"))]


@router.post(
    "/v1/files",
    summary="Upload a file",
    openapi_extra=FORM,
)
async def upload(request: Request, caller: FilesCaller) -> dict[str, object]:
    """A file of the caller's project, for a batch or as reference audio."""
    farm = _farm(request)
    async with read_form(request, max(MAX_BYTES.values())) as form:
        upload, purpose = _upload(form)
        expires_s = _expires_s(form, purpose)
        name = _filename(upload.filename or "")
        file = files.new_file(caller.project, name, purpose, upload.size or 0, expires_s, time.time())
        await files.register_upload(farm.client, file)
        await farm.in_store(farm.objects.put_once, file.key, upload.file, _MEDIA_TYPE)
    await files.create(farm.client, file)
    return file.shown()


@router.get("/v1/files", summary="List files")
async def list_files(
    request: Request,
    caller: FilesCaller,
    purpose: Annotated[str, Query(max_length=64, description="Only these.", examples=["user_data"])] = "",
    limit: Annotated[int, Query(ge=1, le=10_000, description="Most of one page.", examples=[100])] = 10_000,
    order: Annotated[Literal["asc", "desc"], Query(description="By age.", examples=["desc"])] = "desc",
    after: Annotated[str, Query(description="Id of the last file of the page before.", examples=[""])] = "",
) -> dict[str, object]:
    """Files of the caller's project, newest first."""
    if after and not files.is_file_id(after):
        raise ApiError(400, "invalid_cursor", "after must be the id of a file", "after")
    some = await files.list_files(
        _farm(request).client, caller.project, limit + 1, after, purpose, newest_first=order == "desc"
    )
    data = [file.shown() for file in some[:limit]]
    first, last = (data[0]["id"], data[-1]["id"]) if data else (None, None)
    return {"object": "list", "data": data, "first_id": first, "last_id": last, "has_more": len(some) > limit}


@router.get("/v1/files/{file_id}", summary="One file")
async def show(file_id: FileId, request: Request, caller: FilesCaller) -> dict[str, object]:
    return (await find_file(_farm(request), caller, file_id)).shown()


@router.delete("/v1/files/{file_id}", summary="Delete a file")
async def delete(file_id: FileId, request: Request, caller: FilesCaller) -> dict[str, object]:
    farm = _farm(request)
    file = await find_file(farm, caller, file_id)
    await files.delete(farm.client, file)
    return {"id": file.id, "object": "file", "deleted": True}


@router.get("/v1/files/{file_id}/content", summary="The bytes of a file", response_class=Response)
async def content(file_id: FileId, request: Request, caller: FilesCaller) -> Response:
    """Whole, or the one range that is asked for."""
    farm = _farm(request)
    file = await find_file(farm, caller, file_id)
    # nothing here can be named in `If-Range`, so what it names has changed
    asked = None if "if-range" in request.headers else parse_range(request.headers.get("range"), file.bytes)
    start, end = asked or (0, file.bytes)
    headers = {
        "Accept-Ranges": "bytes",
        "Content-Length": str(end - start),
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(file.filename, safe='')}",
        "X-Content-Type-Options": "nosniff",
    }
    if asked:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{file.bytes}"
    pieces = stored_bytes(farm, file.key, start, end)
    try:
        first = await anext(pieces, b"")
    except ObjectMissing:
        raise no_file(file_id) from None
    return StreamingResponse(_joined(first, pieces), 206 if asked else 200, headers, _MEDIA_TYPE)


async def find_file(farm: FarmState, caller: Caller, file_id: str, param: str | None = None) -> FileRecord:
    """A file of the caller's project. Raises ApiError 404 `file_not_found`, for other projects' files too."""
    file = await files.find(farm.client, caller.project, file_id)
    if file is None:
        raise no_file(file_id, param)
    return file


def _farm(request: Request) -> FarmState:
    farm: FarmState = request.app.state.farm
    return farm


def no_file(file_id: str, param: str | None = None) -> ApiError:
    named = f" {file_id}" if files.is_file_id(file_id) else ""
    return ApiError(404, "file_not_found", f"there is no such file{named}", param)


async def _joined(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for piece in rest:
        yield piece


def _upload(form: FormData) -> tuple[UploadFile, str]:
    upload, purpose = file_field(form, "file"), text_field(form, "purpose")
    for name, value in (("file", upload), ("purpose", purpose)):
        if value is None:
            raise ApiError(400, "missing_required_parameter", f"{name} is required", name)
    upload, purpose = cast(UploadFile, upload), cast(str, purpose)
    if purpose not in MAX_BYTES:
        raise ApiError(400, "invalid_value", f"purpose must be one of {', '.join(MAX_BYTES)}", "purpose")
    if (upload.size or 0) > MAX_BYTES[purpose]:
        raise file_too_large(MAX_BYTES[purpose], "file")
    return upload, purpose


def _expires_s(form: FormData, purpose: str) -> int | None:
    """How long the file stays; None for as long as nobody deletes it."""
    fields = {name: text_field(form, f"expires_after[{name}]") for name in ("anchor", "seconds")}
    if not any(fields.values()):
        return BATCH_EXPIRES_S if purpose == "batch" else None
    for name, value in fields.items():
        if value is None:
            field = f"expires_after.{name}"
            raise ApiError(400, "missing_required_parameter", f"{field} is required", field)
    anchor, seconds = cast(str, fields["anchor"]), cast(str, fields["seconds"])
    if anchor != "created_at":
        raise ApiError(400, "invalid_value", "expires_after.anchor must be created_at", "expires_after.anchor")
    if not (seconds.isascii() and seconds.isdigit() and len(seconds) < 10):
        raise ApiError(400, "invalid_type", "expires_after.seconds must be an integer", "expires_after.seconds")
    if int(seconds) not in EXPIRES_S:
        limits = f"expires_after.seconds must be {EXPIRES_S[0]} to {EXPIRES_S[-1]}"
        raise ApiError(400, "invalid_value", limits, "expires_after.seconds")
    return int(seconds)


def _filename(given: str) -> str:
    """The last part of what may be a path, without control characters; it is shown, and never used as a name here."""
    name = "".join(character for character in given.replace("\\", "/").rsplit("/", 1)[-1] if character.isprintable())
    return name[:MAX_FILENAME] or "file"
