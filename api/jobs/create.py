"""`POST /v1/audio/jobs`: everything is checked and what it needs is stored before the job is accepted (§5.4.1)."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from starlette.responses import JSONResponse

from speechmill.api.callers import Caller, needs
from speechmill.api.errors import ApiError
from speechmill.api.farm import FarmState
from speechmill.api.http.body import read_object
from speechmill.api.jobs.body import JobBody, refuse_streaming, terms_of
from speechmill.api.jobs.find import find_job
from speechmill.api.jobs.shown import PATH, path_of, retry_after_s, show_job
from speechmill.api.speech import validate
from speechmill.api.speech.allowance import Allowance
from speechmill.api.speech.orders import Asker, Order, make_order
from speechmill.api.speech.submission import submit_order
from speechmill.infra.jobs import JobRecord
from speechmill.infra.keys import new_id

router = APIRouter(tags=["jobs"])
_BULK = ("requests", "defaults", "on_invalid")


@router.post(
    PATH,
    status_code=202,
    summary="Have a text spoken when its turn comes",
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/JobBody"}}},
        }
    },
)
async def create(request: Request, caller: Annotated[Caller, Depends(needs("jobs"))]) -> JSONResponse:
    """Accepted once it is on the disk: it survives restarts of everything.

    Nobody need wait for it: read it, listen to it while it is made, or be told by a webhook.
    """
    farm: FarmState = request.app.state.farm
    _refuse_ndjson(request)
    fields = await read_object(request, farm.settings.limits.body_bytes)
    _refuse_bulk(fields)
    asker = Asker(farm, caller, request)
    body = validate.parse(JobBody, fields)
    ignored = validate.unknown_fields(body, asker.strict)
    wanted = await order_of(asker, body)
    record, headers = await _submit(farm, caller, wanted)
    if names := sorted({*ignored, *(f"request.{name}" for name in wanted.ignored)}):
        headers["X-Ignored-Params"] = ", ".join(names[: validate.MAX_IGNORED])
    return await accepted(farm, record, headers)


async def order_of(asker: Asker, body: JobBody) -> Order:
    """What the job is to make. Raises ApiError, with `request.` in front of the field at fault."""
    terms = await terms_of(asker.farm, asker.caller, body)
    try:
        refuse_streaming(body.request)
        return await make_order(asker, body.request, terms=terms)
    except ApiError as error:
        error.param = f"request.{error.param}" if error.param else "request"
        raise


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
        await allowance.settle(accepted=taken, audio_s=0.0)
    return await find_job(farm, caller, answer.job), allowance.headers


def _refuse_ndjson(request: Request) -> None:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type == "application/x-ndjson":
        raise ApiError(400, "unsupported_parameter", "jobs are created one at a time here")


def _refuse_bulk(fields: dict[str, Any]) -> None:
    for name in _BULK:
        if fields.get(name) is not None:
            raise ApiError(400, "unsupported_parameter", "jobs are created one at a time here", name)
