"""The body of `POST /v1/audio/jobs`: a request, and on what terms it is worked on (speech_api §5.4.1)."""

import json
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr

from speechmill.api.callers import Caller
from speechmill.api.errors import ApiError
from speechmill.api.farm import FarmState
from speechmill.api.speech import validate
from speechmill.api.speech.orders import Asker, Order, make_order
from speechmill.api.speech.schemas import METADATA_PAIRS
from speechmill.api.speech.terms import Terms, capped
from speechmill.api.webhooks.urls import check_url

JobEvent = Literal["audio.job.succeeded", "audio.job.failed", "audio.job.cancelled", "audio.job.expired"]
DEADLINE_S = 86_400
_NO_PART_OF_A_NAME = frozenset('/\\"')
Part = TypeVar("Part", bound=BaseModel)


class Webhook(BaseModel):
    """Where the end of the job is told."""

    model_config = ConfigDict(extra="forbid")
    url: Annotated[StrictStr, Field(min_length=1, max_length=2048, examples=["https://example.com/hook"])]
    events: Annotated[
        list[JobEvent] | None,
        Field(description="Nothing: every end.", min_length=1, max_length=4, examples=[["audio.job.succeeded"]]),
    ] = None


class Output(BaseModel):
    """How the result is offered."""

    model_config = ConfigDict(extra="forbid")
    filename: Annotated[
        StrictStr | None, Field(min_length=1, max_length=255, description="Of a download.", examples=["c1.mp3"])
    ] = None


class JobBody(BaseModel):
    """A request that is spoken when its turn comes, and kept until somebody fetches it."""

    model_config = ConfigDict(extra="allow")

    request: Annotated[
        dict[str, Any],
        Field(
            description="A body of `POST /v1/audio/speech`, without stream fields and of up to 1000000 characters.",
            examples=[{"input": "Hello there.", "response_format": "mp3"}],
        ),
    ]
    priority: Annotated[
        Literal["interactive", "normal", "batch"] | None,
        Field(description="Capped by the key. Nothing: `normal`.", examples=["batch"]),
    ] = None
    custom_id: Annotated[
        StrictStr | None, Field(min_length=1, max_length=512, description="Your own name.", examples=["chapter-1"])
    ] = None
    metadata: Annotated[
        dict[Annotated[str, Field(max_length=64)], Annotated[StrictStr, Field(max_length=512)]] | None,
        Field(max_length=METADATA_PAIRS, description="Up to 16 pairs.", examples=[{"book": "7"}]),
    ] = None
    ttl_seconds: Annotated[
        StrictInt | None,
        Field(ge=60, le=2_592_000, description="How long the result is kept after the end.", examples=[86_400]),
    ] = None
    deadline_seconds: Annotated[
        StrictInt | None,
        Field(ge=1, le=604_800, description="What is not finished by then is `expired`.", examples=[DEADLINE_S]),
    ] = None
    max_attempts: Annotated[
        StrictInt | None, Field(ge=1, le=10, description="Tries without progress.", examples=[3])
    ] = None
    webhook: Annotated[
        dict[str, Any] | None, Field(description="`url` and `events`.", examples=[{"url": "https://example.com/hook"}])
    ] = None
    output: Annotated[
        dict[str, Any] | None, Field(description="`filename` of the download.", examples=[{"filename": "c1.mp3"}])
    ] = None


async def terms_of(farm: FarmState, caller: Caller, body: JobBody) -> Terms:
    """Raises ApiError 400, with `param` as the client wrote it."""
    settings, asked = farm.settings, body.request
    webhook = _part(Webhook, body.webhook, "webhook")
    if webhook is not None:
        await check_url(farm, webhook.url, "webhook.url")
    return Terms(
        job_class=capped(body.priority or "normal", caller),
        timeout_s=body.deadline_seconds or DEADLINE_S,
        ttl_s=body.ttl_seconds or settings.retention.result_s,
        max_chars=settings.limits.job_input_chars,
        max_attempts=body.max_attempts or settings.worker.max_attempts,
        detached=True,
        accounted=True,
        metadata=body.metadata if body.metadata is not None else _metadata(asked),
        custom_id=body.custom_id,
        filename=_filename(_part(Output, body.output, "output")),
        webhook=json.dumps(webhook.model_dump(exclude_none=True)) if webhook is not None else "",
    )


async def order_of(asker: Asker, body: JobBody) -> Order:
    """What the job is to make. Raises ApiError, with `request.` in front of the field at fault."""
    terms = await terms_of(asker.farm, asker.caller, body)
    try:
        refuse_streaming(body.request)
        return await make_order(asker, body.request, terms=terms)
    except ApiError as error:
        error.param = f"request.{error.param}" if error.param else "request"
        raise


def refuse_streaming(request: dict[str, Any]) -> None:
    """Raises ApiError 400 `unsupported_parameter`: nobody listens to a job in the answer that accepts it."""
    if request.get("stream") not in (None, False) or request.get("stream_format") is not None:
        name = "stream_format" if request.get("stream") in (None, False) else "stream"
        message = f"a job is not streamed in the answer to its creation: leave out {name!r}, and see its links.stream"
        raise ApiError(400, "unsupported_parameter", message, name)


def _metadata(request: dict[str, Any]) -> dict[str, str]:
    """The request's own, which is checked together with the request."""
    given = request.get("metadata")
    return given if isinstance(given, dict) else {}


def _part(kind: type[Part], fields: dict[str, Any] | None, name: str) -> Part | None:
    if fields is None:
        return None
    try:
        return validate.parse(kind, fields)
    except ApiError as error:
        error.param = f"{name}.{error.param}"
        raise


def _filename(output: Output | None) -> str:
    name = output.filename or "" if output is not None else ""
    if not name.isprintable() or _NO_PART_OF_A_NAME & set(name) or name in (".", ".."):
        message = "a file name has no slashes, quotes or control characters"
        raise ApiError(400, "invalid_value", message, "output.filename")
    return name
