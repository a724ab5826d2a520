"""The bodies of webhook calls and answers (speech_api §5.5)."""

from dataclasses import asdict
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, Field, StrictBool, StrictStr

from speechmill.infra.deliveries import Logged
from speechmill.infra.webhooks import EVENT_TYPES, Endpoint, Secrets


def _known_event(name: str) -> str:
    if name not in EVENT_TYPES:
        raise ValueError(f"known event types are {', '.join(EVENT_TYPES)}")
    return name


Name = Annotated[StrictStr, Field(min_length=1, max_length=256)]
URL = ["https://example.com/events"]
SUCCEEDED = "audio.job.succeeded"
EventType = Annotated[StrictStr, AfterValidator(_known_event), Field(examples=[SUCCEEDED])]
EventTypes = Annotated[list[EventType], Field(min_length=1, max_length=len(EVENT_TYPES))]


class NewEndpoint(BaseModel):
    """Where to send which events."""

    name: Annotated[Name, Field(description="For people.", examples=["our backend"])]
    url: Annotated[StrictStr, Field(description="Where events are posted.", examples=URL)]
    event_types: Annotated[EventTypes, Field(description="What is told.", examples=[[SUCCEEDED]])]
    include_result_url: Annotated[
        StrictBool, Field(description="Tell where the audio is, for 15 minutes.", examples=[True])
    ] = False


class EndpointChange(BaseModel):
    """What is to be different."""

    name: Annotated[Name | None, Field(description="For people.", examples=["our backend"])] = None
    url: Annotated[StrictStr | None, Field(description="Where events are posted.", examples=URL)] = None
    event_types: Annotated[EventTypes | None, Field(description="What is told.", examples=[[SUCCEEDED]])] = None
    include_result_url: Annotated[
        StrictBool | None, Field(description="Tell where the audio is, for 15 minutes.", examples=[True])
    ] = None
    enabled: Annotated[
        StrictBool | None, Field(description="true: begin anew after too many failures.", examples=[True])
    ] = None


class Rotation(BaseModel):
    """Whether the secret of before signs as well for a day."""

    keep_old_secret_active_for_24_hours: Annotated[
        StrictBool, Field(description="Sign with both until then.", examples=[True])
    ] = False


class Trial(BaseModel):
    """What to send."""

    event_type: Annotated[EventType, Field(description="Of the event to send.")] = "webhook.test"


def described(kind: type[BaseModel], required: bool = True) -> dict[str, Any]:
    """The body, as OpenAPI has it."""
    content = {"application/json": {"schema": kind.model_json_schema()}}
    return {"requestBody": {"required": required, "content": content}}


def show_endpoint(endpoint: Endpoint) -> dict[str, Any]:
    return {
        "id": endpoint.id,
        "object": "webhook_endpoint",
        "name": endpoint.name,
        "url": endpoint.url,
        "event_types": list(endpoint.event_types),
        "created_at": endpoint.created_at,
        "updated_at": endpoint.updated_at,
        "signing_secret_hint": endpoint.secrets.hint,
        "include_result_url": endpoint.include_result_url,
        "enabled": endpoint.enabled,
        "disabled_reason": endpoint.disabled or None,
    }


def show_secret(secrets: Secrets) -> dict[str, str]:
    return {"signing_secret": secrets.current, "signing_secret_hint": secrets.hint}


def show_with_secret(endpoint: Endpoint) -> dict[str, Any]:
    return show_endpoint(endpoint) | show_secret(endpoint.secrets)


def show_delivery(logged: Logged) -> dict[str, Any]:
    delivery = logged.delivery
    return {
        "id": delivery.id,
        "object": "webhook_delivery",
        "webhook_endpoint_id": None if delivery.url else delivery.target,
        "event_id": delivery.message["id"],
        "event_type": delivery.message["type"],
        "status": logged.state,
        "created_at": delivery.created_at,
        "next_attempt_at": None if logged.next_at is None else int(logged.next_at),
        "attempts": [asdict(attempt) for attempt in logged.attempts],
    }


def show_page(data: list[dict[str, Any]], has_more: bool) -> dict[str, Any]:
    first, last = (data[0]["id"], data[-1]["id"]) if data else (None, None)
    return {"object": "list", "data": data, "first_id": first, "last_id": last, "has_more": has_more}
