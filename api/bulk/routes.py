"""`/v1/audio/job_groups`: a group of jobs as one thing (speech_api §5.4.5)."""

import asyncio
import re
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request
from starlette.responses import JSONResponse, StreamingResponse

from speechmill.api.bulk.archive import archive_of
from speechmill.api.bulk.cancel import cancel_group
from speechmill.api.bulk.find import find_jobs_group
from speechmill.api.bulk.lines import NDJSON
from speechmill.api.bulk.results import Cursor, result_lines
from speechmill.api.bulk.retry import GroupRetryBody, send_again
from speechmill.api.bulk.shown import PATH, path_of, show_group
from speechmill.api.callers import Caller, needs
from speechmill.api.errors import ApiError
from speechmill.api.farm import FarmState
from speechmill.api.http.body import read_optional_object
from speechmill.api.jobs.find import is_job_id
from speechmill.api.speech import validate
from speechmill.infra.groups import GroupRecord, ended_place, job_of
from speechmill.infra.objects import attachment

router = APIRouter(tags=["jobs"])
JobsCaller = Annotated[Caller, Depends(needs("jobs"))]
_BODY_BYTES = 64 << 10
_CURSOR = re.compile(r"(\d{1,15})\.(\d{1,15})", re.ASCII)
GroupId = Annotated[str, Path(description="Id of a group of jobs.", examples=["jobgrp_01JEXAMPLE"])]


@router.get(f"{PATH}/{{group_id}}", summary="One group of jobs")
async def show(request: Request, caller: JobsCaller, group_id: GroupId) -> dict[str, Any]:
    """With the number of its jobs in each state."""
    return show_group(await find_jobs_group(_farm(request), caller, group_id))


@router.post(f"{PATH}/{{group_id}}/cancel", summary="Cancel a group of jobs")
async def cancel(request: Request, caller: JobsCaller, group_id: GroupId) -> dict[str, Any]:
    """What has ended stays as it is. Cancelling it again changes nothing."""
    farm = _farm(request)
    await cancel_group(farm, await find_jobs_group(farm, caller, group_id))
    return show_group(await find_jobs_group(farm, caller, group_id))


@router.post(
    f"{PATH}/{{group_id}}/retry",
    status_code=202,
    summary="Speak what failed of a group again",
    openapi_extra={"requestBody": {"content": {"application/json": {"schema": GroupRetryBody.model_json_schema()}}}},
)
async def again(request: Request, caller: JobsCaller, group_id: GroupId) -> JSONResponse:
    """Each job that failed waits anew; or those that ended otherwise, as `states` says."""
    farm = _farm(request)
    group = await find_jobs_group(farm, caller, group_id)
    body = validate.parse(GroupRetryBody, await read_optional_object(request, _BODY_BYTES))
    await send_again(farm, group, body.states or ["failed"])
    await farm.client.wait_durable()
    shown = show_group(await find_jobs_group(farm, caller, group_id))
    return JSONResponse(shown, 202, {"Location": path_of(group), "Retry-After": "1"})


@router.get(
    f"{PATH}/{{group_id}}/results",
    summary="Results of a group of jobs",
    response_class=StreamingResponse,
    responses={200: {"description": "A line for each job that has ended", "content": {NDJSON: {}}}},
)
async def results(
    request: Request,
    caller: JobsCaller,
    group_id: GroupId,
    after: Annotated[
        str | None,
        Query(description="`cursor` or `job_id` of the last line that you have.", examples=["17.0", "job_01JEXAMPLE"]),
    ] = None,
) -> StreamingResponse:
    """In the order in which the jobs ended, so that what comes later stands behind what you have.

    Behind a job that was sent again since, lines may come twice, but none is left out; a `cursor` is always exact.
    """
    farm = _farm(request)
    group = await find_jobs_group(farm, caller, group_id)
    cursor = await _cursor(farm, group, after) if after is not None else Cursor()
    return StreamingResponse(result_lines(farm, group, cursor), media_type=NDJSON)


async def _cursor(farm: FarmState, group: GroupRecord, after: str) -> Cursor:
    if told := _CURSOR.fullmatch(after):
        return Cursor(int(told[1]), int(told[2]))
    place = await ended_place(farm.client, group.id, after)
    if place is not None:
        return Cursor(place)
    if group.closed and is_job_id(after) and (line := await asyncio.to_thread(_line_of, group, after)):
        return Cursor(group.ends, line)
    raise ApiError(400, "invalid_cursor", "after must be the cursor or job_id of a result of this group", "after")


@router.get(
    f"{PATH}/{{group_id}}/archive",
    summary="The audio of a group of jobs",
    response_class=StreamingResponse,
    responses={200: {"description": "A ZIP file", "content": {"application/zip": {}}}},
)
async def archive(request: Request, caller: JobsCaller, group_id: GroupId) -> StreamingResponse:
    """One file for each job that has succeeded by now, called by its `custom_id`, and `manifest.json`."""
    farm = _farm(request)
    group = await find_jobs_group(farm, caller, group_id)
    headers = {"Content-Disposition": attachment(f"{group.id}.zip"), "Cache-Control": "no-store"}
    return StreamingResponse(archive_of(farm, group), 200, headers, "application/zip")


def _line_of(group: GroupRecord, job: str) -> int:
    """Of the line that never became this job; 0 for none."""
    lines = range(group.submitted + 1, group.expected + 1)
    return next((line for line in lines if job_of(group.id, line) == job), 0)


def _farm(request: Request) -> FarmState:
    farm: FarmState = request.app.state.farm
    return farm
