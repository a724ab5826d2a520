"""`GET /v1/audio/jobs/{id}/subtitles`: when each word of a finished job is spoken (speech_api §1.7)."""

import asyncio
import time
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Path, Query, Request
from starlette.responses import JSONResponse, Response

from speechmill.api.callers import Caller, needs
from speechmill.api.errors import ApiError
from speechmill.api.farm import FarmState
from speechmill.api.jobs.find import find_job, finished
from speechmill.infra.jobs import JobRecord
from speechmill.infra.subtitles import srt, vtt

router = APIRouter(tags=["jobs"])
FILING_S = 5.0
"""How long an answer waits for a job that only has to be filed still."""
POLL_S = 0.02


@router.get("/v1/audio/jobs/{job_id}/subtitles", summary="Subtitles of a finished job", response_class=Response)
async def subtitles(
    request: Request,
    caller: Annotated[Caller, Depends(needs("jobs"))],
    job_id: Annotated[str, Path(description="From `X-Job-Id`.", examples=["job_01JEXAMPLE"])],
    format: Annotated[
        Literal["srt", "vtt", "json"], Query(description="SubRip, WebVTT or the word list.", examples=["srt"])
    ] = "srt",
) -> Response:
    """Kept for ten minutes after a synchronous call, or for as long as the job's result."""
    record = await _filed(request.app.state.farm, caller, job_id)
    words = finished(record)["word_timestamps"]
    if words is None:
        raise ApiError(400, "aligner_not_available", f"nothing here times the words of {record.model}")
    if format == "json":
        return JSONResponse(words)
    kind = "text/vtt" if format == "vtt" else "application/x-subrip"
    text = vtt(words) if format == "vtt" else srt(words)
    return Response(text, media_type=f"{kind}; charset=utf-8")


async def _filed(farm: FarmState, caller: Caller, job_id: str) -> JobRecord:
    """The job; one whose audio is all there has its result in a moment. Raises ApiError 404."""
    until = time.monotonic() + FILING_S
    while True:
        record = await find_job(farm, caller, job_id)
        if record.ended or record.joined < record.segments or time.monotonic() > until:
            return record
        await asyncio.sleep(POLL_S)
