"""A job by its id, as far as the caller may know of it."""

import re
from collections.abc import Sequence
from typing import Any

from speechmill.api.callers import Caller
from speechmill.api.errors import ApiError
from speechmill.api.farm import FarmState
from speechmill.infra.jobs import JobRecord, parse_record

_ID = re.compile(r"job_[0-7][0-9A-HJKMNP-TV-Z]{25}", re.ASCII)

_ENDS = {"failed": "failed", "cancelled": "been cancelled", "expired": "expired", "succeeded": "succeeded"}


def is_job_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


async def find_job(farm: FarmState, caller: Caller, job_id: str) -> JobRecord:
    """Raises ApiError 404 `job_not_found`, for the jobs of other projects, of batches and of the farm itself too."""
    record = await read_job(farm, job_id) if is_job_id(job_id) else None
    if record is None or record.project != caller.project or not record.listed:
        raise ApiError(404, "job_not_found", "there is no such job")
    return record


async def read_job(farm: FarmState, job_id: str) -> JobRecord | None:
    return parse_record(job_id, await farm.client.read_hash(farm.client.keys.job(job_id)))


def finished(record: JobRecord) -> dict[str, Any]:
    """The job's result. Raises ApiError 409 `result_not_ready` where there is none, or none yet."""
    if record.result is not None:
        return record.result
    if not record.ended:
        error = ApiError(409, "result_not_ready", "the job is not finished", job_id=record.job)
        error.headers = {"Retry-After": "1"}
        raise error
    message = record.error["message"] if record.error else "there is no audio"
    raise ApiError(409, "result_not_ready", f"the job has {_ENDS[record.state]}: {message}", job_id=record.job)


async def read_jobs(farm: FarmState, jobs: Sequence[str]) -> list[JobRecord]:
    """The records in the order of their ids, without those that have gone."""
    pipe = farm.client.server("control").pipeline(transaction=False)
    for job in jobs:
        pipe.hgetall(farm.client.keys.job(job))
    found = await pipe.execute() if jobs else []
    records = (parse_record(job, raw) for job, raw in zip(jobs, found, strict=True))
    return [record for record in records if record is not None]
