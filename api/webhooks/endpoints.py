"""Endpoints of a project over HTTP, and the secrets that sign what is sent there (speech_api §5.5)."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request

from speechmill.api.callers import Caller, needs
from speechmill.api.errors import ApiError
from speechmill.api.farm import FarmState
from speechmill.api.http.body import read_object, read_optional_object
from speechmill.api.http.pages import page_after
from speechmill.api.speech.validate import parse
from speechmill.api.webhooks.schemas import (
    EndpointChange,
    NewEndpoint,
    Rotation,
    Trial,
    described,
    show_endpoint,
    show_page,
    show_secret,
    show_with_secret,
)
from speechmill.api.webhooks.urls import check_url
from speechmill.infra.events import encode, message
from speechmill.infra.webhooks import (
    EVENT_TYPES,
    MOST_ENDPOINTS,
    Endpoint,
    change_endpoint,
    drop_endpoint,
    find_endpoint,
    list_endpoints,
    new_endpoint,
    put_endpoint,
    rotate_project_secret,
)

router = APIRouter(tags=["webhooks"])
WebhooksCaller = Annotated[Caller, Depends(needs("webhooks"))]
Limit = Annotated[int, Query(ge=1, le=100, description="Most of one page.", examples=[20])]
EndpointId = Annotated[str, Path(description="Id of an endpoint.", examples=["whep_01JEXAMPLE"])]
After = Annotated[str | None, Query(description="Id of the last one of the page before.", examples=["whep_01JEXAMPLE"])]
_BODY_BYTES = 64 << 10


@router.post("/v1/webhook_endpoints", summary="Be told of events", openapi_extra=described(NewEndpoint))
async def create(request: Request, caller: WebhooksCaller) -> dict[str, Any]:
    """Answers the secret that signs what is sent there; it is told only here."""
    farm = _farm(request)
    body = parse(NewEndpoint, await read_object(request, _BODY_BYTES))
    await check_url(farm, body.url, "url")
    endpoint = replace(
        new_endpoint(caller.project, body.name, body.url, _unique(body.event_types), time.time()),
        include_result_url=body.include_result_url,
    )
    if await farm.client.run(put_endpoint(endpoint)) == "full":
        raise ApiError(400, "invalid_value", f"limit reached: a project has at most {MOST_ENDPOINTS} endpoints")
    await farm.client.wait_durable()
    return show_with_secret(endpoint)


@router.get("/v1/webhook_endpoints", summary="Endpoints")
async def list_all(request: Request, caller: WebhooksCaller, limit: Limit = 20, after: After = None) -> dict[str, Any]:
    """Newest first."""
    page, has_more = page_after(await list_endpoints(_farm(request).client, caller.project), after, limit)
    return show_page([show_endpoint(endpoint) for endpoint in page], has_more)


@router.get("/v1/webhook_endpoints/{endpoint_id}", summary="One endpoint")
async def show(endpoint_id: EndpointId, request: Request, caller: WebhooksCaller) -> dict[str, Any]:
    return show_endpoint(await find(request, caller, endpoint_id))


@router.post(
    "/v1/webhook_endpoints/{endpoint_id}", summary="Change an endpoint", openapi_extra=described(EndpointChange)
)
async def update(endpoint_id: EndpointId, request: Request, caller: WebhooksCaller) -> dict[str, Any]:
    body = parse(EndpointChange, await read_object(request, _BODY_BYTES))
    if body.url is not None:
        await check_url(_farm(request), body.url, "url")
    given = body.model_dump(exclude_none=True, exclude={"enabled", "event_types"})
    if body.event_types is not None:
        given["event_types"] = _unique(body.event_types)
    if body.enabled is not None:
        given |= {"failing_since": 0, "disabled": "" if body.enabled else "by its owner"}

    def changed(endpoint: Endpoint) -> Endpoint:
        wanted = replace(endpoint, **given)
        return wanted if wanted == endpoint else replace(wanted, updated_at=int(time.time()))

    return show_endpoint(await _changed(request, caller, endpoint_id, changed))


@router.delete("/v1/webhook_endpoints/{endpoint_id}", summary="Delete an endpoint")
async def delete(endpoint_id: EndpointId, request: Request, caller: WebhooksCaller) -> dict[str, Any]:
    """What was still to be sent there is not sent any more."""
    client = _farm(request).client
    if await client.run(drop_endpoint(caller.project, endpoint_id)) == "unknown":
        raise _not_found()
    await client.wait_durable()
    return {"id": endpoint_id, "object": "webhook_endpoint.deleted", "deleted": True}


@router.post(
    "/v1/webhook_endpoints/{endpoint_id}/rotate_secret",
    summary="A new secret",
    openapi_extra=described(Rotation, required=False),
)
async def rotate_secret(endpoint_id: EndpointId, request: Request, caller: WebhooksCaller) -> dict[str, Any]:
    body, now = parse(Rotation, await read_optional_object(request, _BODY_BYTES)), time.time()

    def rotated(endpoint: Endpoint) -> Endpoint:
        secrets = endpoint.secrets.rotated(body.keep_old_secret_active_for_24_hours, now)
        return replace(endpoint, secrets=secrets, updated_at=int(now))

    return show_with_secret(await _changed(request, caller, endpoint_id, rotated))


@router.post(
    "/v1/webhook_secret/rotate",
    summary="A new secret for jobs' webhooks",
    openapi_extra=described(Rotation, required=False),
)
async def rotate_own_secret(request: Request, caller: WebhooksCaller) -> dict[str, Any]:
    """It signs what is sent to URLs that single jobs bring with them."""
    client = _farm(request).client
    body = parse(Rotation, await read_optional_object(request, _BODY_BYTES))
    keep_old = body.keep_old_secret_active_for_24_hours
    secrets = await rotate_project_secret(client, caller.project, keep_old, time.time())
    await client.wait_durable()
    return {"object": "webhook_secret", **show_secret(secrets)}


@router.post(
    "/v1/webhook_endpoints/{endpoint_id}/test",
    summary="Send a test event",
    openapi_extra=described(Trial, required=False),
)
async def send_test(endpoint_id: EndpointId, request: Request, caller: WebhooksCaller) -> dict[str, Any]:
    """Sent at once and once; answers the status that came back, whatever it is."""
    farm = _farm(request)
    body = parse(Trial, await read_optional_object(request, _BODY_BYTES))
    endpoint = await find(request, caller, endpoint_id)
    await check_url(farm, endpoint.url, "url")
    now = time.time()
    event = message(body.event_type, now, {"id": endpoint.id})
    answer = await farm.poster.post(endpoint.url, endpoint.secrets.active(now), event["id"], encode(event))
    if answer.status_code is None:
        raise ApiError(400, "invalid_value", f"the endpoint gave no answer: {answer.error}", "url")
    return {
        "object": "webhook_endpoint.test",
        "webhook_endpoint_id": endpoint.id,
        "event_type": body.event_type,
        "status_code": answer.status_code,
        "success": True,
    }


@router.get("/v1/webhook_event_types", summary="Events that can be told of")
async def event_types(caller: WebhooksCaller) -> dict[str, Any]:
    return {"object": "list", "data": list(EVENT_TYPES)}


def _farm(request: Request) -> FarmState:
    farm: FarmState = request.app.state.farm
    return farm


def _unique(names: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


async def find(request: Request, caller: Caller, endpoint_id: EndpointId) -> Endpoint:
    """An endpoint of the caller's project. Raises ApiError 404 `not_found`, for other projects' endpoints too."""
    endpoint = await find_endpoint(_farm(request).client, caller.project, endpoint_id)
    if endpoint is None:
        raise _not_found()
    return endpoint


async def _changed(
    request: Request, caller: Caller, endpoint_id: EndpointId, change: Callable[[Endpoint], Endpoint]
) -> Endpoint:
    client = _farm(request).client
    endpoint = await change_endpoint(client, caller.project, endpoint_id, change)
    if endpoint is None:
        raise _not_found()
    await client.wait_durable()
    return endpoint


def _not_found() -> ApiError:
    return ApiError(404, "not_found", "there is no such webhook endpoint")
