"""`GET /v1/audio/jobs`: the jobs of the caller's project, page by page (speech_api §5.4.4)."""

import re
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request

from speechmill.api.callers import Caller, needs
from speechmill.api.errors import ApiError
from speechmill.api.farm import FarmState
from speechmill.api.jobs.find import read_jobs
from speechmill.api.jobs.shown import PATH, show_jobs
from speechmill.infra.listing import FOREVER_MS, UnknownJob, Wanted, list_jobs

router = APIRouter(tags=["jobs"])
Status = Literal["queued", "running", "succeeded", "failed", "cancelling", "cancelled", "expired"]
Moment = Annotated[int | None, Query(ge=0, le=1 << 40, description="Unix seconds, exclusive.", examples=[1767225600])]
_METADATA = re.compile(r"metadata\[(.{1,64})\]", re.DOTALL)


@router.get(PATH, summary="List jobs")
async def jobs(
    request: Request,
    caller: Annotated[Caller, Depends(needs("jobs"))],
    status: Annotated[list[Status] | None, Query(description="May be repeated.", examples=[["failed"]])] = None,
    model: Annotated[str | None, Query(max_length=256, description="Only its jobs.", examples=["hibari"])] = None,
    group_id: Annotated[
        str | None, Query(max_length=64, description="Only its jobs.", examples=["jobgrp_01JEXAMPLE"])
    ] = None,
    custom_id: Annotated[
        str | None, Query(max_length=512, description="Your own name of a job.", examples=["chapter-1"])
    ] = None,
    dead: Annotated[
        bool, Query(description="Only dead letters: jobs given up on after `max_attempts` tries.", examples=[True])
    ] = False,
    created_after: Moment = None,
    created_before: Moment = None,
    limit: Annotated[int, Query(ge=1, le=100, description="Most of one page.", examples=[20])] = 20,
    after: Annotated[
        str | None, Query(description="Id of the last job of the page before.", examples=["job_01JEXAMPLE"])
    ] = None,
    before: Annotated[
        str | None, Query(description="Id of the first job of the page behind.", examples=["job_01JEXAMPLE"])
    ] = None,
    order: Annotated[Literal["asc", "desc"], Query(description="By time of creation.", examples=["asc"])] = "desc",
) -> dict[str, Any]:
    """Newest first unless said otherwise. `metadata[key]=value` asks for jobs with this pair, and may be repeated."""
    farm: FarmState = request.app.state.farm
    if after is not None and before is not None:
        raise ApiError(400, "mutually_exclusive_parameters", "a page is after one job or before one", "before")
    wanted = Wanted(tuple(status or ()), _one(model), _one(group_id), _one(custom_id), _metadata(request), dead)
    try:
        found = await list_jobs(
            farm.client,
            caller.project,
            wanted,
            limit + 1,
            order if before is None else "asc" if order == "desc" else "desc",
            _cursor(after, "after") or _cursor(before, "before"),
            (created_after + 1) * 1000 if created_after is not None else 0,
            created_before * 1000 if created_before is not None else FOREVER_MS,
        )
    except UnknownJob:
        raise _unknown("after" if after is not None else "before") from None
    ids = found[:limit] if before is None else found[:limit][::-1]
    data = await show_jobs(farm, await read_jobs(farm, ids))
    first, last = (data[0]["id"], data[-1]["id"]) if data else (None, None)
    return {"object": "list", "data": data, "first_id": first, "last_id": last, "has_more": len(found) > limit}


def _one(value: str | None) -> tuple[str, ...]:
    return (value,) if value is not None else ()


def _metadata(request: Request) -> dict[str, str]:
    pairs = {}
    for name, value in request.query_params.multi_items():
        if match := _METADATA.fullmatch(name):
            pairs[match[1]] = value
    return pairs


def _cursor(job: str | None, param: str) -> str:
    if job == "":
        raise _unknown(param)
    return job or ""


def _unknown(param: str) -> ApiError:
    return ApiError(400, "invalid_cursor", f"{param} must be the id of a job of this list", param)
