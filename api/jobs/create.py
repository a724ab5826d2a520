"""`POST /v1/audio/jobs`: everything is checked and what it needs is stored before the job is accepted (§5.4.1)."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.responses import JSONResponse

from speechmill.api.bulk.create import create_group, create_group_of_lines
from speechmill.api.bulk.lines import NDJSON
from speechmill.api.callers import Caller, needs
from speechmill.api.farm import FarmState
from speechmill.api.http.body import media_type, read_object
from speechmill.api.jobs.body import JobBody, order_of
from speechmill.api.jobs.find import find_job
from speechmill.api.jobs.shown import PATH, path_of, retry_after_s, show_job
from speechmill.api.speech import validate
from speechmill.api.speech.allowance import Allowance
from speechmill.api.speech.orders import Asker, Order
from speechmill.api.speech.submission import submit_order
from speechmill.infra.jobs import JobRecord
from speechmill.infra.keys import new_id

router = APIRouter(tags=["jobs"])
_BULK = ("requests", "defaults", "on_invalid")
_MOST_VALUES = 1_000_000


@router.post(
    PATH,
    status_code=202,
    summary="Have a text spoken when its turn comes",
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": {
                        "anyOf": [
                            {"$ref": "#/components/schemas/JobBody"},
                            {"$ref": "#/components/schemas/BulkBody"},
                        ]
                    }
                },
            },
        }
    },
)
async def create(request: Request, caller: Annotated[Caller, Depends(needs("jobs"))]) -> JSONResponse:
    """Accepted once it is on the disk: it survives restarts of everything.

    Nobody need wait for it: read it, listen to it while it is made, or be told by a webhook. With `requests`, or as
    lines of `application/x-ndjson`, it is a group of jobs.
    """
    farm: FarmState = request.app.state.farm
    asker = Asker(farm, caller, request)
    if media_type(request) == NDJSON:
        return await create_group_of_lines(asker, request)
    fields = await read_object(request, farm.settings.limits.bulk_bytes, _MOST_VALUES)
    if any(fields.get(name) is not None for name in _BULK):
        return await create_group(asker, fields)
    body = validate.parse(JobBody, fields)
    ignored = validate.unknown_fields(body, asker.strict)
    wanted = await order_of(asker, body)
    record, headers = await _submit(farm, caller, wanted)
    if names := sorted({*ignored, *(f"request.{name}" for name in wanted.ignored)}):
        headers["X-Ignored-Params"] = ", ".join(names[: validate.MAX_IGNORED])
    return await accepted(farm, record, headers)


async def accepted(farm: FarmState, record: JobRecord, headers: dict[str, str]) -> JSONResponse:
    """202 with the job, and when to ask for it."""
    shown = await show_job(farm, record)
    told = {"Location": path_of(record), "ETag": f'"{record.version}"', "Retry-After": str(retry_after_s(shown))}
    return JSONResponse(shown, 202, {**headers, **told})


async def _submit(farm: FarmState, caller: Caller, wanted: Order) -> tuple[JobRecord, dict[str, str]]:
    """The job's record, and headers that tell what the key has left. Raises ApiError 429, Overloaded."""
    allowance, taken = Allowance(farm, caller, "", wanted.chars), False
    await allowance.charge()
    try:
        await farm.admit(wanted.card, interactive=False, patient=True)
        answer = await submit_order(farm, caller, wanted, new_id("job"))
        taken = answer.answer == "ok"
        await farm.client.wait_durable()
    finally:
        await allowance.settle(accepted=taken)
    return await find_job(farm, caller, answer.job), allowance.headers
