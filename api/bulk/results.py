"""What became of the jobs of a group: a line for each, in the shape of OpenAI's batches (speech_api §5.3)."""

import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

from speechmill.api.bulk.expand import item_lines
from speechmill.api.errors import ApiError, error_object, from_job
from speechmill.api.farm import FarmState
from speechmill.api.jobs.find import read_jobs
from speechmill.api.jobs.shown import is_gone, show_result, sign
from speechmill.infra.groups import GroupRecord, ended_jobs, job_of
from speechmill.infra.jobs import JobRecord
from speechmill.infra.objects import ObjectMissing


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far a reader of a group's results has come; 0 for none."""

    ended: int = 0
    """Place of a job among those that have ended."""
    line: int = 0
    """Of the group, as far as it was never to become a job."""

    def __str__(self) -> str:
        return f"{self.ended}.{self.line}"


def dump_line(line: dict[str, Any]) -> bytes:
    return json.dumps(line, ensure_ascii=False).encode() + b"\n"


def spoken_line(number: str, record: JobRecord, url: str | None, **more: Any) -> dict[str, Any]:
    """Of a job that succeeded. `number` is what is behind the prefixes of the line's ids."""
    assert record.result is not None
    shown = show_result(record, url)
    del shown["word_timestamps"]
    body = {"object": "audio.speech", **shown, **more}
    return _line(number, record.custom_id, {"status_code": 200, "request_id": f"req_{number}", "body": body}, None)


def refused_line(number: str, custom_id: str | None, error: ApiError) -> dict[str, Any]:
    """Of what the client or the farm did wrong."""
    body = {"error": error_object(error)}
    response = {"status_code": error.status, "request_id": f"req_{number}", "body": body}
    return _line(number, custom_id, response, None)


def unspoken_line(number: str, custom_id: str | None, code: str, message: str) -> dict[str, Any]:
    """Of what nobody got to."""
    return _line(number, custom_id, None, {"code": code, "message": message})


def failure_of(record: JobRecord) -> ApiError:
    """Why a job failed."""
    return from_job(record.error or {"code": "internal_error", "message": "the job failed"}, record.job)


def _line(number: str, custom_id: str | None, response: Any, error: Any) -> dict[str, Any]:
    return {"id": f"batch_req_{number}", "custom_id": custom_id, "response": response, "error": error}


async def result_lines(farm: FarmState, group: GroupRecord, after: Cursor) -> AsyncIterator[bytes]:
    """Of the jobs that have ended, and of a group that is over also of the lines that never became jobs."""
    async for record, place in ended_records(farm, group, after.ended):
        after = replace(after, ended=place)
        yield dump_line({**await _line_of(farm, record), "job_id": record.job, "cursor": str(after)})
    if not (group.is_over and group.closed):
        return
    line = group.submitted
    with contextlib.suppress(ObjectMissing):  # the record is about to go as well
        async for text in item_lines(farm, group, group.offset):
            line += 1
            if line > after.line:
                job, after = job_of(group.id, line), replace(after, line=line)
                told = _stopped(job.removeprefix("job_"), json.loads(text)["custom_id"], group.closed)
                yield dump_line({**told, "job_id": job, "cursor": str(after)})


async def ended_records(farm: FarmState, group: GroupRecord, behind: int = 0) -> AsyncIterator[tuple[JobRecord, int]]:
    """In the order in which the jobs ended, each with its place, without those that were deleted."""
    while jobs := await ended_jobs(farm.client, group.id, behind):
        places = dict(jobs)
        for record in await read_jobs(farm, list(places)):
            yield record, places[record.job]
        behind = jobs[-1][1]


async def _line_of(farm: FarmState, record: JobRecord) -> dict[str, Any]:
    number = record.job.removeprefix("job_")
    if record.result is not None:
        url = None if is_gone(record) else await farm.in_store(sign, farm, record)
        return spoken_line(number, record, url)
    if record.state == "failed":
        return refused_line(number, record.custom_id, failure_of(record))
    return _stopped(number, record.custom_id, record.state)


def _stopped(number: str, custom_id: str | None, state: str) -> dict[str, Any]:
    return unspoken_line(number, custom_id, f"job_{state}", f"the job was {state}")
