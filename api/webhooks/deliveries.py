"""What was sent to endpoints, what came of it, and sending it again (speech_api §5.5)."""

import time
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request

from speechmill.api.errors import ApiError
from speechmill.api.farm import FarmState
from speechmill.api.http.pages import page_after
from speechmill.api.webhooks.endpoints import After, EndpointId, Limit, WebhooksCaller, find
from speechmill.api.webhooks.schemas import show_delivery, show_page
from speechmill.infra.client import AsyncClient
from speechmill.infra.deliveries import Logged, find_delivery, list_deliveries, queue_deliveries
from speechmill.infra.keys import new_id

router = APIRouter(tags=["webhooks"])
DeliveryId = Annotated[str, Path(description="Id of a delivery.", examples=["whdl_01JEXAMPLE"])]


@router.get("/v1/webhook_endpoints/{endpoint_id}/deliveries", summary="What was sent, and what came of it")
async def list_all(
    endpoint_id: EndpointId, request: Request, caller: WebhooksCaller, limit: Limit = 20, after: After = None
) -> dict[str, Any]:
    """Newest first, as far back as it is kept."""
    endpoint = await find(request, caller, endpoint_id)
    page, has_more = page_after(await list_deliveries(_client(request), endpoint.id), after, limit)
    return show_page([show_delivery(one) for one in page], has_more)


@router.post("/v1/webhook_deliveries/{delivery_id}/redeliver", summary="Send an event again")
async def redeliver(delivery_id: DeliveryId, request: Request, caller: WebhooksCaller) -> dict[str, Any]:
    """The same event with the same `webhook-id`, as a delivery of its own."""
    client = _client(request)
    earlier = await find_delivery(client, caller.project, delivery_id)
    if earlier is None:
        raise ApiError(404, "not_found", "there is no such delivery")
    if not earlier.url:
        await find(request, caller, earlier.target)
    again = replace(earlier, id=new_id("whdel"), created_at=int(time.time()))
    await client.run(queue_deliveries([again]))
    await client.wait_durable()
    return show_delivery(Logged(again, "pending", (), again.created_at))


def _client(request: Request) -> AsyncClient:
    farm: FarmState = request.app.state.farm
    return farm.client
