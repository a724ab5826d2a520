"""`POST /v1/audio/speech/batch`: several texts in one call that waits for all of them (speech_api §5.1)."""

import asyncio
import base64
import io
from collections.abc import Mapping
from typing import Annotated, Any, cast

from fastapi import APIRouter, Depends, Request, Response
from pydantic import Field
from redis.exceptions import RedisError

from speechmill.api.callers import Caller, needs
from speechmill.api.errors import ApiError, error_object, translate
from speechmill.api.farm import FarmState
from speechmill.api.http.body import read_object
from speechmill.api.http.disconnect import disconnected
from speechmill.api.speech import validate
from speechmill.api.speech.allowance import limits_told, standing
from speechmill.api.speech.buffered import write_whole
from speechmill.api.speech.call import ClientGone, SpeechCall
from speechmill.api.speech.orders import Asker, make_order
from speechmill.api.speech.schemas import SpeechOptions
from speechmill.infra.encode import MEDIA_TYPES
from speechmill.infra.errors import FarmError
from speechmill.infra.keys import new_id

router = APIRouter(tags=["speech"])
ROUTE = "/v1/audio/speech/batch"
_STREAM_FIELDS = ("stream", "stream_format")
_SAME = ({"voice", "speaker"}, {"ref_audio", "references", "speaker_embedding"})
"""Fields that say the same in different ways: an item that has one has no use for the defaults' others."""


class BatchBody(SpeechOptions):
    """Texts, and options that hold for all of them; what an item says for itself wins."""

    items: Annotated[
        list[Any],
        Field(
            description="1 to 32 bodies of `POST /v1/audio/speech`.", examples=[[{"input": "One."}, {"input": "Two."}]]
        ),
    ]


@router.post(
    ROUTE,
    summary="Speak several texts",
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/BatchBody"}}},
        }
    },
)
async def speech_batch(
    request: Request, response: Response, caller: Annotated[Caller, Depends(needs("speech"))]
) -> dict[str, Any]:
    """All items are spoken at the same time. One that fails says so in its place and harms no other."""
    farm: FarmState = request.app.state.farm
    async with limits_told(farm, caller):
        fields = await read_object(request, farm.settings.limits.body_bytes)
        asker = Asker(farm, caller, request)
        items, ignored = _items(asker, fields)
        results = await _speak_all(asker, request, items)
    response.headers.update(await standing(farm, caller))
    if ignored:
        response.headers["X-Ignored-Params"] = ", ".join(ignored[: validate.MAX_IGNORED])
    done = sum(result["status"] == "success" for result in results)
    return {
        "id": new_id("speech-batch").replace("batch_", "batch-"),
        "results": results,
        "total": len(results),
        "succeeded": done,
        "failed": len(results) - done,
    }


def _items(asker: Asker, fields: dict[str, Any]) -> tuple[list[Any], tuple[str, ...]]:
    """What is to be spoken, with the defaults, and the names that say nothing here. Raises ApiError."""
    if fields.pop("input", None) is not None:
        raise ApiError(400, "unsupported_parameter", "every item has an input of its own", "input")
    body, most = validate.parse(BatchBody, fields), asker.farm.settings.limits.batch_items
    if not body.items:
        raise ApiError(400, "invalid_value", "items holds nothing", "items")
    if len(body.items) > most:
        message = f"items holds {len(body.items)}; at most {most} are taken"
        raise ApiError(400, "too_many_items", message, "items")
    _refuse_streaming(fields)
    ignored = validate.unknown_fields(body, asker.strict)
    if body.model is not None or any(_is_object(item) and item.get("model") is None for item in body.items):
        asker.model(body.model)
    defaults = {name: value for name, value in fields.items() if name != "items"}
    return [with_defaults(defaults, item) for item in body.items], ignored


def _is_object(item: Any) -> bool:
    return isinstance(item, dict)


def with_defaults(defaults: dict[str, Any], item: Any) -> Any:
    """The item, and for what it does not say the defaults."""
    if not _is_object(item):
        return item
    own = {name: value for name, value in item.items() if value is not None}
    replaced = set[str]().union(*(names for names in _SAME if names & own.keys()))
    return {name: value for name, value in defaults.items() if name not in replaced} | own


def _refuse_streaming(fields: Mapping[str, Any]) -> None:
    for name in _STREAM_FIELDS:
        if fields.get(name) is not None:
            raise ApiError(400, "unsupported_parameter", f"a batch is not streamed: leave out {name!r}", name)


async def _speak_all(asker: Asker, request: Request, items: list[Any]) -> list[dict[str, Any]]:
    """In the items' order. A client that leaves takes all of them with it."""
    speaking = [asyncio.create_task(_result(asker, index, item)) for index, item in enumerate(items)]
    gone: asyncio.Future[Any] = asyncio.create_task(disconnected(request.receive))
    everything: asyncio.Future[list[dict[str, Any]]] = asyncio.gather(*speaking)
    try:
        await asyncio.wait({gone, cast("asyncio.Future[Any]", everything)}, return_when=asyncio.FIRST_COMPLETED)
        if not everything.done():
            everything.cancel()
        return await everything
    finally:
        gone.cancel()
        everything.cancel()


async def _result(asker: Asker, index: int, item: Any) -> dict[str, Any]:
    try:
        return {"index": index, "status": "success", "error": None, **await _speak(asker, item)}
    except (ApiError, FarmError, RedisError) as failure:
        error = translate(failure)
        error.param = ".".join(filter(None, (f"items[{index}]", error.param)))
        blank = {"audio_data": None, "media_type": None, "usage": None}
        told = {"error": error.message, "error_detail": error_object(error)}
        return {"index": index, "status": "error", **told, **blank}


async def _speak(asker: Asker, item: Any) -> dict[str, Any]:
    if not _is_object(item):
        raise ApiError(400, "invalid_type", "an item must be an object")
    _refuse_streaming(item)
    wanted = await make_order(asker, {**item, "stream": False})
    call = SpeechCall(asker.farm, wanted, ROUTE, asker.caller)
    file = io.BytesIO()
    try:
        await call.begin()
        frames, _ = await write_whole(call, await call.first(), file)
        call.observe(200)
    except ClientGone:
        call.observe(499)
        raise
    finally:
        await asyncio.shield(call.close())
    audio = await asyncio.to_thread(base64.b64encode, file.getbuffer())
    return {
        "audio_data": audio.decode(),
        "media_type": MEDIA_TYPES[wanted.audio_format],
        "usage": call.usage(frames),
    }
