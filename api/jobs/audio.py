"""`GET /v1/audio/jobs/{id}/audio`: the stored result, from the store itself or through here (speech_api §5.4.6)."""

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request
from starlette.responses import Response, StreamingResponse

from speechmill.api.callers import Caller, needs
from speechmill.api.errors import ApiError
from speechmill.api.farm import FarmState
from speechmill.api.http.etags import is_known
from speechmill.api.http.ranges import parse_range, stored_bytes
from speechmill.api.jobs.find import find_job, finished
from speechmill.api.jobs.shown import PATH, filename, is_gone, sign
from speechmill.infra.jobs import JobRecord
from speechmill.infra.messages import finish_reason
from speechmill.infra.objects import ObjectMissing, attachment

router = APIRouter(tags=["jobs"])


@router.get(f"{PATH}/{{job_id}}/audio", summary="The audio of a finished job", response_class=Response)
async def audio(
    request: Request,
    caller: Annotated[Caller, Depends(needs("jobs"))],
    job_id: Annotated[str, Path(description="Id of a job.", examples=["job_01JEXAMPLE"])],
    redirect: Annotated[
        bool, Query(description="false: the bytes come from here, or the range asked for.", examples=[False])
    ] = True,
) -> Response:
    """A complete file. By default a redirect to a URL that anybody may fetch it from for 15 minutes."""
    farm: FarmState = request.app.state.farm
    record = await find_job(farm, caller, job_id)
    result = finished(record)
    if is_gone(record):
        raise _expired(record)
    if redirect:
        url = await farm.in_store(sign, farm, record)
        return Response(status_code=302, headers={"Location": url, "Cache-Control": "no-store"})
    tag = f'"{result["sha256"]}"'
    headers = {
        "Accept-Ranges": "bytes",
        "ETag": tag,
        "Cache-Control": "no-store",
        "Content-Disposition": attachment(filename(record)),
        "X-Content-Type-Options": "nosniff",
        "X-Sample-Rate": str(result["sample_rate"]),
        "X-Channels": str(result["channels"]),
        "X-Audio-Duration-Ms": str(result["duration_ms"]),
        "X-Finish-Reason": finish_reason(result),
    }
    if is_known(request.headers.get("if-none-match"), result["sha256"]):
        return Response(status_code=304, headers=headers)
    is_same = request.headers.get("if-range", tag) == tag
    asked = parse_range(request.headers.get("range"), result["bytes"]) if is_same else None
    start, end = asked or (0, result["bytes"])
    headers["Content-Length"] = str(end - start)
    if asked:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{result['bytes']}"
    pieces = stored_bytes(farm, result["key"], start, end)
    try:
        first = await anext(pieces, b"")
    except ObjectMissing:
        raise _expired(record) from None
    return StreamingResponse(_joined(first, pieces), 206 if asked else 200, headers, result["media_type"])


def _expired(record: JobRecord) -> ApiError:
    return ApiError(410, "result_expired", "the audio of this job is not kept any more", job_id=record.job)


async def _joined(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for piece in rest:
        yield piece
