"""`POST /v1/audio/speech`: one request becomes one job, and the answer is what its `out` log holds."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from starlette.datastructures import FormData, UploadFile
from starlette.responses import Response

from speechmill.api.callers import Caller, needs
from speechmill.api.errors import ApiError
from speechmill.api.farm import FarmState
from speechmill.api.http.body import media_type, parse_object, read_object
from speechmill.api.http.multipart import FIELD_BYTES, file_field, file_too_large, read_form
from speechmill.api.speech.allowance import limits_told
from speechmill.api.speech.buffered import whole_file
from speechmill.api.speech.call import ClientGone, SpeechCall
from speechmill.api.speech.orders import Asker, make_order
from speechmill.api.speech.raw import RawStream
from speechmill.api.speech.response_headers import HEADERS
from speechmill.api.speech.sse import HEADERS_S, SpeechEvents
from speechmill.infra.encode import MEDIA_TYPES
from speechmill.infra.errors import Overloaded

router = APIRouter(tags=["speech"])
ROUTE = "/v1/audio/speech"
_FORM = {
    "type": "object",
    "required": ["request"],
    "properties": {
        "request": {"type": "string", "description": "The JSON body.", "examples": ['{"input": "Hello."}']},
        "ref_audio": {"type": "string", "format": "binary", "description": "The reference recording as a file."},
    },
}
_BODIES = {
    "required": True,
    "content": {
        "application/json": {"schema": {"$ref": "#/components/schemas/SpeechBody"}},
        "multipart/form-data": {"schema": _FORM},
    },
}

_ANSWERED = (*MEDIA_TYPES.values(), "text/event-stream")


async def read_request(request: Request, farm: FarmState) -> tuple[dict[str, Any], bytes | None]:
    """The fields of a JSON body or of a form's part `request`, and a recording that came as a file."""
    limits = farm.settings.limits
    if media_type(request) != "multipart/form-data":
        return await read_object(request, limits.body_bytes), None
    async with read_form(request, limits.ref_audio_bytes, max_files=2) as form:
        fields, file = await _json_part(form, "request"), file_field(form, "ref_audio")
        return fields, await file.read() if file is not None else None


async def _json_part(form: FormData, name: str) -> dict[str, Any]:
    """A part that holds an object; some clients send it as a file."""
    part = form.get(name)
    if isinstance(part, UploadFile):
        if (part.size or 0) > FIELD_BYTES:
            raise file_too_large(FIELD_BYTES, name)
        return parse_object(await part.read())
    if part is None:
        raise ApiError(400, "missing_required_parameter", f"the form lacks the part {name!r}", name)
    return parse_object(part.encode())


@router.post(
    ROUTE,
    summary="Speak a text",
    response_class=Response,
    responses={200: {"description": "Audio", "headers": HEADERS, "content": {kind: {} for kind in _ANSWERED}}},
    openapi_extra={"requestBody": _BODIES},
)
async def speech(request: Request, caller: Annotated[Caller, Depends(needs("speech"))]) -> Response:
    """Text in, speech out: whole, as raw bytes while it is made, or as server-sent events.

    Events are `speech.audio.delta` with base64 audio, then `speech.audio.timestamps` if asked for, then one of
    `speech.audio.done` (`usage`, `duration_ms`, `job_id`, `seed`; `finish_reason`: `stop`, or `length` where a limit
    cut the speech off) and `speech.audio.error`. A client that leaves cancels the job, unless it asked for `store`.
    """
    farm: FarmState = request.app.state.farm
    async with limits_told(farm, caller):
        fields, upload = await read_request(request, farm)
        wanted = await make_order(Asker(farm, caller, request), fields, upload=upload)
        return await answer(SpeechCall(farm, wanted, ROUTE, caller), request)


async def answer(call: SpeechCall, request: Request) -> Response:
    """Speak in the way that the order asks for. Raises ApiError or Overloaded as long as nothing is sent."""
    call.watch(request.receive)
    response: Response | None = None
    try:
        await call.begin()
        response = await _ANSWERS[call.order.mode](call)
        return response
    except ClientGone:
        call.observe(499)
        return Response(status_code=499)
    except ApiError as error:
        call.observe(error.status)
        raise
    except Overloaded:
        call.observe(503)
        raise
    finally:
        if not isinstance(response, RawStream | SpeechEvents):
            await asyncio.shield(call.close())


async def _buffered(call: SpeechCall) -> Response:
    answer = await whole_file(call, await call.first())
    call.observe(200)
    return answer


async def _raw(call: SpeechCall) -> Response:
    return RawStream(call, await call.first())


async def _events(call: SpeechCall) -> Response:
    """Headers wait for the first audio, or an error, for a while; what fails later is an event."""
    first = asyncio.ensure_future(call.first())
    try:
        await asyncio.wait({first}, timeout=HEADERS_S)
    except asyncio.CancelledError:
        first.cancel()
        raise
    if first.done():
        first.result()
    return SpeechEvents(call, first)


_ANSWERS = {"buffered": _buffered, "raw": _raw, "sse": _events}
