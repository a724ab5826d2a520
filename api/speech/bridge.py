"""Routes in the shape of ElevenLabs, for clients made for it (speech_api §4). Off unless `api.elevenlabs`."""

import re
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request
from starlette.responses import Response

from speechmill.api.callers import Caller, needs
from speechmill.api.errors import ApiError
from speechmill.api.farm import FarmState
from speechmill.api.http.body import read_object
from speechmill.api.speech.call import SpeechCall
from speechmill.api.speech.orders import Asker, make_order
from speechmill.api.speech.routes import answer

router = APIRouter(tags=["elevenlabs"])
_FORMAT = re.compile(r"(mp3|pcm|opus|wav)_(\d{4,5})(?:_\d{2,3})?")
_THEIR_MODELS = "eleven_"
VoiceId = Annotated[str, Path(description="Name or id of a voice.", examples=["heart"])]
OutputFormat = Annotated[str, Query(description="Format and rate.", examples=["mp3_44100_128", "pcm_24000"])]
Speaking = Annotated[Caller, Depends(needs("speech"))]
_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["text"],
                    "properties": {
                        "text": {"type": "string", "description": "The text to speak.", "examples": ["Hello."]},
                        "model_id": {
                            "type": "string",
                            "description": "A served model; theirs mean the default.",
                            "examples": ["eleven_multilingual_v2"],
                        },
                        "language_code": {"type": "string", "description": "ISO 639-1.", "examples": ["en"]},
                        "voice_settings": {
                            "type": "object",
                            "description": "`speed` counts.",
                            "examples": [{"speed": 1.1}],
                        },
                        "seed": {"type": "integer", "description": "Same seed, same audio.", "examples": [7]},
                    },
                }
            }
        },
    }
}


@router.post("/v1/text-to-speech/{voice_id}", response_class=Response, summary="Speak", openapi_extra=_BODY)
async def whole(
    request: Request, caller: Speaking, voice_id: VoiceId, output_format: OutputFormat = "mp3_44100_128"
) -> Response:
    """The whole audio at once."""
    return await _speak(request, caller, voice_id, output_format, stream=False)


@router.post("/v1/text-to-speech/{voice_id}/stream", response_class=Response, summary="Stream", openapi_extra=_BODY)
async def stream(
    request: Request, caller: Speaking, voice_id: VoiceId, output_format: OutputFormat = "mp3_44100_128"
) -> Response:
    """Bytes while they are made."""
    return await _speak(request, caller, voice_id, output_format, stream=True)


async def _speak(request: Request, caller: Caller, voice_id: str, output_format: str, stream: bool) -> Response:
    farm: FarmState = request.app.state.farm
    body = await read_object(request, farm.settings.limits.body_bytes)
    fields = _fields(body, voice_id, output_format) | ({"stream_format": "audio"} if stream else {"stream": False})
    wanted = await make_order(Asker(farm, caller, request), fields)
    return await answer(SpeechCall(farm, wanted, "/v1/text-to-speech", caller), request)


def _fields(body: dict[str, Any], voice_id: str, output_format: str) -> dict[str, Any]:
    """Their names as ours; what we have no name for stays and is reported as ignored."""
    shape = _FORMAT.fullmatch(output_format)
    if shape is None:
        message = "output_format is such as mp3_44100_128, pcm_24000, opus_48000_64 or wav_24000"
        raise ApiError(400, "unsupported_response_format", message, "output_format")
    if "text" not in body:
        raise ApiError(400, "missing_required_parameter", "text is missing", "text")
    settings = body.get("voice_settings")
    renamed = ("text", "model_id", "language_code", "voice_settings")
    rest = {name: value for name, value in body.items() if name not in renamed}
    model = body.get("model_id")
    theirs = isinstance(model, str) and model.startswith(_THEIR_MODELS)
    return {
        **rest,
        "input": body["text"],
        "model": None if theirs else model,
        "voice": voice_id,
        "language": body.get("language_code"),
        "speed": settings.get("speed") if isinstance(settings, dict) else None,
        "response_format": shape[1],
        "sample_rate": int(shape[2]),
    }
