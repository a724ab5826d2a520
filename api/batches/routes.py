"""`/v1/batches`: files of requests in OpenAI's shape (speech_api §5.3)."""

import json
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request, Response

from speechmill.api.batches.schemas import BatchRequest, OutputExpiry
from speechmill.api.batches.shown import show_batch
from speechmill.api.bulk.cancel import cancel_group
from speechmill.api.callers import Caller, needs
from speechmill.api.errors import ApiError
from speechmill.api.farm import FarmState
from speechmill.api.files import BATCH_EXPIRES_S, find_file
from speechmill.api.http.body import read_object
from speechmill.api.http.profiles import path_profile
from speechmill.api.speech import validate
from speechmill.api.speech.allowance import Allowance
from speechmill.api.speech.orders import Asker
from speechmill.infra import groups
from speechmill.infra.groups import GroupRecord
from speechmill.infra.keys import new_id

router = APIRouter(tags=["batches"])
BatchesCaller = Annotated[Caller, Depends(needs("batches"))]
BatchId = Annotated[str, Path(description="Id of a batch.", examples=["batch_01JEXAMPLE"])]
DAY_S = 86_400
KEPT_S = 30 * DAY_S
_BODY_BYTES = 64 << 10


@router.post(
    "/v1/batches",
    summary="Have a file of requests spoken",
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/BatchRequest"}}},
        }
    },
)
async def create(request: Request, response: Response, caller: BatchesCaller) -> dict[str, Any]:
    """Each line of the file is a body of `POST /v1/audio/speech`; what becomes of it is a line of another file."""
    farm = _farm(request)
    asker = Asker(farm, caller, request)
    body = validate.parse(BatchRequest, await read_object(request, _BODY_BYTES))
    expires_s = _expires_s(body)
    file = await find_file(farm, caller, body.input_file_id, "input_file_id")
    if file.purpose != "batch":
        raise ApiError(400, "invalid_value", "the file was not uploaded for a batch", "input_file_id")
    fields = {
        "project": caller.project,
        "kind": "batch",
        "total": 0,
        "rejected": 0,
        "window": farm.settings.limits.bulk_window,
        "deadline_s": DAY_S,
        "retention_s": KEPT_S,
        "project_jobs": caller.limits.queued_jobs or farm.settings.limits.project_jobs,
        "metadata": json.dumps(body.metadata or {}, ensure_ascii=False),
        **groups.told(
            {"input_file_id": file.id, "output_expires_s": expires_s, "caller": _caller_fields(request, caller)}
        ),
    }
    allowance = Allowance(farm, caller, "", 0)  # its characters are counted when the file is read
    await allowance.charge()
    response.headers.update(allowance.headers)
    batch = await farm.client.run(groups.create_group(new_id("batch"), fields, asker.once))
    await farm.client.wait_durable()
    return show_batch(await find_batch(farm, caller, batch))


@router.get("/v1/batches", summary="List batches")
async def batches(
    request: Request,
    caller: BatchesCaller,
    limit: Annotated[int, Query(ge=1, le=100, description="Most of one page.", examples=[20])] = 20,
    after: Annotated[
        str | None, Query(description="Id of the last batch of the page before.", examples=["batch_01JEXAMPLE"])
    ] = None,
) -> dict[str, Any]:
    """Batches of the caller's project, newest first."""
    farm = _farm(request)
    if after is not None and not await groups.is_batch_of(farm.client, caller.project, after):
        raise ApiError(400, "invalid_cursor", "after must be the id of a batch", "after")
    found = await groups.list_batches(farm.client, caller.project, limit + 1, after or "")
    data = [show_batch(batch) for batch in found[:limit]]
    first, last = (data[0]["id"], data[-1]["id"]) if data else (None, None)
    return {"object": "list", "data": data, "first_id": first, "last_id": last, "has_more": len(found) > limit}


@router.get("/v1/batches/{batch_id}", summary="One batch")
async def show(request: Request, caller: BatchesCaller, batch_id: BatchId) -> dict[str, Any]:
    """How far it is, and where its output is in the end."""
    return show_batch(await find_batch(_farm(request), caller, batch_id))


@router.post("/v1/batches/{batch_id}/cancel", summary="Cancel a batch")
async def cancel(request: Request, caller: BatchesCaller, batch_id: BatchId) -> dict[str, Any]:
    """What has been spoken by now is in its output all the same."""
    farm = _farm(request)
    await cancel_group(farm, await find_batch(farm, caller, batch_id))
    return show_batch(await find_batch(farm, caller, batch_id))


async def find_batch(farm: FarmState, caller: Caller, batch_id: str) -> GroupRecord:
    """Raises ApiError 404 `batch_not_found`, for the batches of other projects too."""
    batch = await groups.find_group(farm.client, batch_id)
    if batch is None or batch.project != caller.project or batch.kind != "batch":
        raise ApiError(404, "batch_not_found", "there is no such batch")
    return batch


def _expires_s(body: BatchRequest) -> int:
    if body.output_expires_after is None:
        return BATCH_EXPIRES_S
    try:
        return validate.parse(OutputExpiry, body.output_expires_after).seconds
    except ApiError as error:
        error.param = f"output_expires_after.{error.param}"
        raise


def _caller_fields(request: Request, caller: Caller) -> dict[str, Any]:
    """Who asked, for when the file is read."""
    profile = path_profile(request)
    return {
        **asdict(caller),
        "scopes": sorted(caller.scopes),
        "profile": profile.name if profile else caller.profile,
        "limits": caller.limits.model_dump(),
    }


def _farm(request: Request) -> FarmState:
    farm: FarmState = request.app.state.farm
    return farm
