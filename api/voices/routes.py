"""Voices over HTTP: list, upload, hear and delete them (speech_api §3).

Nothing is remembered in this process: every call reads what all of them share, so any replica may answer any call.
"""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query, Request
from starlette.responses import Response

from speechmill.api.callers import Caller, needs, profile_of
from speechmill.api.errors import ApiError
from speechmill.api.farm import FarmState
from speechmill.api.http.pages import page_after
from speechmill.api.speech.orders import Asker
from speechmill.api.voices.catalogue import DEFAULT, all_entries, own_entry, uploaded_entry
from speechmill.api.voices.features import forget_features
from speechmill.api.voices.form import FORM, read_voice_form
from speechmill.api.voices.upload import keep_voice
from speechmill.infra.objects import ObjectMissing
from speechmill.infra.voices import VoiceRecord, drop_voice, find_voice

router = APIRouter(tags=["voices"])
Reader = Annotated[Caller, Depends(needs("voices:read"))]
Visitor = Annotated[Caller, Depends(needs("voices:read", public_list=True))]
Writer = Annotated[Caller, Depends(needs("voices:write"))]
MOST_LISTED = 1000
VoiceName = Annotated[str, Path(description="Name of a voice, in any case, or its id.", examples=["heart"])]


def _farm(request: Request) -> FarmState:
    farm: FarmState = request.app.state.farm
    return farm


@router.get("/v1/audio/voices", summary="Voices that can be named")
async def list_all(
    request: Request,
    caller: Visitor,
    model: Annotated[
        str | None, Query(description="Only voices that this model can speak with.", examples=["hibari"])
    ] = None,
    shape: Annotated[
        Literal["strings", "objects"] | None,
        Query(alias="format", description="Of `voices`; nothing: by profile.", examples=["strings"]),
    ] = None,
    limit: Annotated[
        int, Query(ge=1, le=MOST_LISTED, description="Most of one page.", examples=[MOST_LISTED])
    ] = MOST_LISTED,
    after: Annotated[
        str | None, Query(description="Id of the last voice of the page before.", examples=["voice_01JEXAMPLE"])
    ] = None,
) -> dict[str, Any]:
    farm = _farm(request)
    models, entries = farm.models, await all_entries(farm, caller)
    if model is not None:
        models = (Asker(farm, caller, request).model(model)[0],)
        entries = [entry for entry in entries if models[0].id in entry.models]
    page, has_more = page_after(entries, after, limit)
    names = {entry.name.lower() for entry in page}
    if after is None and any(card.default_voice for card in models):
        names.add(DEFAULT)
    profile = profile_of(request, caller, farm.settings.api.default_profile)
    objects = shape == "objects" or (shape is None and profile.voice_objects)
    return {
        "object": "list",
        "voices": [{"id": name, "name": name} if objects else name for name in sorted(names)],
        "uploaded_voices": [_uploaded(entry.record) for entry in page if entry.record],
        "data": [entry.described() for entry in page],
        "has_more": has_more,
    }


@router.get("/v1/audio/voices/{voice_id}/sample", summary="The recording that a voice was made from")
async def sample(voice_id: VoiceName, request: Request, caller: Reader) -> Response:
    farm = _farm(request)
    record = await farm.client.run(find_voice(caller.project, voice_id))
    if record is None or not record.sample_key:
        raise _not_found()
    try:
        body = await farm.in_store(farm.objects.read_range, record.sample_key, 0, record.file_size)
    except ObjectMissing:  # deleted meanwhile
        raise _not_found() from None
    extension = record.sample_key.rpartition(".")[2]
    headers = {
        "Content-Disposition": f'attachment; filename="{record.id}.{extension}"',
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
    }
    return Response(body, media_type=record.mime_type, headers=headers)


@router.get("/v1/audio/voices/{name_or_id:path}", summary="One voice")
async def show(name_or_id: VoiceName, request: Request, caller: Reader) -> dict[str, Any]:
    farm = _farm(request)
    if entry := own_entry(farm, name_or_id):
        return entry.described()
    record = await farm.client.run(find_voice(caller.project, name_or_id))
    if record is None:
        raise _not_found()
    return uploaded_entry(farm, record).described()


@router.post("/v1/audio/voices", summary="Upload a voice", openapi_extra=FORM)
async def create(request: Request, caller: Writer) -> dict[str, Any]:
    """Nothing changes unless all of it succeeds; the voice that had the name before stays until then."""
    farm = _farm(request)
    form = await read_voice_form(request, Asker(farm, caller, request))
    record = await keep_voice(farm, caller, form)
    entry = uploaded_entry(farm, record)
    return {
        "success": True,
        "voice": _told(record) | (_direct(record) if record.dim else {}),
        "id": entry.id,
        "object": "audio.voice",
        "type": entry.type,
        "created_at": entry.created_at,
        "name": entry.name,
    }


@router.delete("/v1/audio/voices/{name_or_id:path}", summary="Delete an uploaded voice")
async def delete(name_or_id: VoiceName, request: Request, caller: Writer) -> dict[str, Any]:
    """Jobs that were accepted with the voice still finish with it."""
    farm = _farm(request)
    record = await farm.client.run(find_voice(caller.project, name_or_id))
    if record is None:
        if name_or_id.casefold() == DEFAULT or own_entry(farm, name_or_id):
            raise ApiError(403, "voice_is_builtin", "this voice belongs to the server and stays", "name")
        missing = _not_found()
        missing.beside = {"success": False}
        raise missing
    await farm.client.run(drop_voice(caller.project, record.id))
    await forget_features(farm, record)
    await farm.client.wait_durable()
    return {
        "success": True,
        "message": f"Voice '{record.name}' deleted successfully",
        "id": record.id,
        "object": "audio.voice.deleted",
        "deleted": True,
    }


def _told(record: VoiceRecord) -> dict[str, Any]:
    """An uploaded voice as vLLM-Omni's clients know it."""
    texts = {"ref_text": record.ref_text, "speaker_description": record.description}
    return {
        "name": record.name,
        "consent": record.consent,
        "created_at": record.created_at,
        "mime_type": record.mime_type,
        "file_size": record.file_size,
        **{name: text for name, text in texts.items() if text},
    }


def _direct(record: VoiceRecord) -> dict[str, Any]:
    return {"embedding_source": "direct", "embedding_dim": record.dim}


def _uploaded(record: VoiceRecord) -> dict[str, Any]:
    return _told(record) | (_direct(record) if record.dim else {"embedding_source": "audio", "embedding_dim": None})


def _not_found() -> ApiError:
    return ApiError(404, "voice_not_found", "there is no such voice; see GET /v1/audio/voices", "name")
