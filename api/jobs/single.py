"""One job over HTTP: read it or wait for news, cancel it, send it again, delete it (speech_api §5.4.3, §5.4.5)."""

import asyncio
import secrets
from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field, StrictBool
from starlette.responses import JSONResponse, Response

from speechmill.api.callers import Caller, needs
from speechmill.api.errors import ApiError
from speechmill.api.farm import FarmState
from speechmill.api.http.body import read_optional_object
from speechmill.api.http.etags import is_known
from speechmill.api.jobs.create import accepted
from speechmill.api.jobs.find import find_job
from speechmill.api.jobs.removal import remove_job
from speechmill.api.jobs.shown import PATH, asked, retry_after_s, show_job
from speechmill.api.speech import validate
from speechmill.api.speech.schemas import INT64
from speechmill.infra.jobs import JobRecord
from speechmill.infra.protocol import retry

router = APIRouter(tags=["jobs"])
JobsCaller = Annotated[Caller, Depends(needs("jobs"))]
JobId = Annotated[str, Path(description="From the answer that made it, or `X-Job-Id`.", examples=["job_01JEXAMPLE"])]
MOST_WAIT_S = 60


class RetryBody(BaseModel):
    """How to speak it again."""

    model_config = ConfigDict(extra="forbid")
    new_seed: Annotated[StrictBool | None, Field(description="Draw another seed.", examples=[True])] = None


@router.get(f"{PATH}/{{job_id}}", summary="One job")
async def show(
    request: Request,
    caller: JobsCaller,
    job_id: JobId,
    wait: Annotated[
        float | None,
        Query(ge=0, le=MOST_WAIT_S, description="Seconds to wait until something changes.", examples=[30]),
    ] = None,
    wait_for: Annotated[
        Literal["terminal"] | None, Query(description="Wait for the end, whatever changes.", examples=["terminal"])
    ] = None,
    since_version: Annotated[int | None, Query(ge=0, description="The version that you know.", examples=[3])] = None,
    include: Annotated[
        Literal["request"] | None, Query(description="`request`: also what was asked for.", examples=["request"])
    ] = None,
) -> Response:
    """At once, or as soon as there is news. Its version is its `ETag`: `If-None-Match` with it is answered 304."""
    farm, known = _farm(request), request.headers.get("if-none-match")
    record = await find_job(farm, caller, job_id)
    if wait or wait_for:
        record = await _news(farm, caller, record, _Wait(wait, wait_for is not None, since_version, known))
    headers = {"ETag": f'"{record.version}"', "Cache-Control": "no-store"}
    if is_known(known, str(record.version)) or since_version == record.version:
        return Response(status_code=304, headers=headers)
    shown = await show_job(farm, record)
    if include == "request":
        shown["request"] = await asked(farm, record)
    if not record.ended:
        headers["Retry-After"] = str(retry_after_s(shown))
    return JSONResponse(shown, headers=headers)


class _Wait:
    """For how long, and for what."""

    def __init__(self, wait_s: float | None, for_end: bool, since: int | None, known: str | None) -> None:
        self.until = asyncio.get_running_loop().time() + (MOST_WAIT_S if wait_s is None else wait_s)
        self._for_end = for_end
        self._since = since
        self._known = known

    def is_over(self, first: JobRecord, now: JobRecord) -> bool:
        if now.ended or self._for_end:
            return now.ended
        if self._since is None and self._known is None:
            return now.version != first.version
        return now.version != self._since and not is_known(self._known, str(now.version))

    @property
    def left_s(self) -> float:
        return self.until - asyncio.get_running_loop().time()


async def _news(farm: FarmState, caller: Caller, record: JobRecord, wait: _Wait) -> JobRecord:
    first = record
    while not wait.is_over(first, record) and wait.left_s > 0:
        if await farm.watching.change(record.job, record.version, wait.left_s):
            record = await find_job(farm, caller, record.job)
    return record


@router.post(f"{PATH}/{{job_id}}/cancel", summary="Cancel a job")
async def cancel(request: Request, caller: JobsCaller, job_id: JobId) -> dict[str, Any]:
    """Workers drop it at their next step. Cancelling it again changes nothing."""
    farm = _farm(request)
    record = await find_job(farm, caller, job_id)
    if not record.ended:
        await farm.cancel(job_id, "client")
        await farm.client.wait_durable()
        record = await find_job(farm, caller, job_id)
    if record.ended and record.state != "cancelled":
        raise ApiError(409, "job_already_finished", f"the job is {record.state} already", job_id=job_id)
    return await show_job(farm, record)


@router.post(
    f"{PATH}/{{job_id}}/retry",
    status_code=202,
    summary="Speak a job again",
    openapi_extra={"requestBody": {"content": {"application/json": {"schema": RetryBody.model_json_schema()}}}},
)
async def again(request: Request, caller: JobsCaller, job_id: JobId) -> JSONResponse:
    """A job that failed, was cancelled or expired waits anew, with a deadline of its own."""
    farm = _farm(request)
    body = validate.parse(RetryBody, await read_optional_object(request, farm.settings.limits.body_bytes))
    record = await find_job(farm, caller, job_id)
    fresh = replace(record.request, seed=secrets.randbelow(INT64)) if body.new_seed else None
    answer = await farm.client.run(retry(job_id, fresh))
    if answer == "unknown":
        raise ApiError(404, "job_not_found", "there is no such job")
    if answer != "ok":
        raise ApiError(409, "job_not_retryable", f"the job is {answer}", job_id=job_id)
    await farm.client.wait_durable()
    return await accepted(farm, await find_job(farm, caller, job_id), {})


@router.delete(f"{PATH}/{{job_id}}", summary="Delete a job")
async def delete(
    request: Request,
    caller: JobsCaller,
    job_id: JobId,
    force: Annotated[
        bool, Query(description="Also one that has not ended, which is cancelled first.", examples=[True])
    ] = False,
) -> dict[str, Any]:
    """With its audio, which is gone when this is answered."""
    farm = _farm(request)
    record = await find_job(farm, caller, job_id)
    if not record.ended and not force:
        raise ApiError(409, "job_not_finished", "the job has not ended: cancel it, or use force=true", job_id=job_id)
    await remove_job(farm, record)
    return {"id": job_id, "object": "audio.job.deleted", "deleted": True}


def _farm(request: Request) -> FarmState:
    farm: FarmState = request.app.state.farm
    return farm
