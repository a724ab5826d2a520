"""Recordings in which speakers agree to have their voice used (speech_api §3.2)."""

import re
import time
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request

from speechmill.api.callers import Caller, needs
from speechmill.api.errors import ApiError
from speechmill.api.farm import FarmState
from speechmill.api.http.body import read_object
from speechmill.api.http.form_fields import form_schema, required_text
from speechmill.api.http.multipart import read_form
from speechmill.api.http.pages import page_after
from speechmill.api.voices.recordings import Recording, read_recording, store_unclaimed
from speechmill.infra.consents import ConsentRecord, drop_consent, find_consent, list_consents, put_consent
from speechmill.infra.keys import new_id

router = APIRouter(tags=["voices"])
Reader = Annotated[Caller, Depends(needs("voices:read"))]
Writer = Annotated[Caller, Depends(needs("voices:write"))]
ConsentId = Annotated[str, Path(description="Id of a recorded consent.", examples=["cons_01JEXAMPLE"])]
MOST_LISTED = 100
MOST_NAME_CHARS = 256
MOST_TAG_CHARS = 35
FORM = form_schema(
    required=("name", "language", "recording"),
    name={"maxLength": MOST_NAME_CHARS, "description": "Whose consent it is.", "examples": ["Alice"]},
    language={"maxLength": MOST_TAG_CHARS, "description": "A BCP-47 tag.", "examples": ["en-GB"]},
    recording={"format": "binary", "description": "The speaker's own words."},
)
_BODY_BYTES = 64 << 10
_TAG = re.compile(r"[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*")
"""BCP-47 in outline; what the subtags mean is not checked."""


def _farm(request: Request) -> FarmState:
    farm: FarmState = request.app.state.farm
    return farm


@router.post("/v1/audio/voice_consents", summary="Upload a recorded consent", openapi_extra=FORM)
async def create(request: Request, caller: Writer) -> dict[str, Any]:
    farm = _farm(request)
    async with read_form(request, farm.settings.limits.ref_audio_bytes) as form:
        name = required_text(form, "name", MOST_NAME_CHARS)
        language = required_text(form, "language", MOST_TAG_CHARS)
        if not _TAG.fullmatch(language):
            raise ApiError(400, "invalid_value", "language must be a BCP-47 tag such as en-GB", "language")
        recording = await read_recording(form, "recording")
    if recording is None:
        raise ApiError(400, "missing_required_parameter", "recording is required", "recording")
    record = _record(caller, name, language, recording)
    await store_unclaimed(farm, record.recording_key, recording.data, recording.mime_type)
    await farm.client.run(put_consent(record))
    await farm.client.wait_durable()
    return _described(record)


@router.get("/v1/audio/voice_consents", summary="Recorded consents")
async def list_all(
    request: Request,
    caller: Reader,
    limit: Annotated[int, Query(ge=1, le=MOST_LISTED, description="Most of one page.", examples=[20])] = 20,
    after: Annotated[
        str | None, Query(description="Id of the last consent of the page before.", examples=["cons_01JEXAMPLE"])
    ] = None,
) -> dict[str, Any]:
    """Newest first."""
    page, has_more = page_after(await list_consents(_farm(request).client, caller.project), after, limit)
    return {"object": "list", "data": [_described(record) for record in page], "has_more": has_more}


@router.get("/v1/audio/voice_consents/{consent_id}", summary="One recorded consent")
async def show(consent_id: ConsentId, request: Request, caller: Reader) -> dict[str, Any]:
    return _described(await _find(request, caller, consent_id))


@router.post("/v1/audio/voice_consents/{consent_id}", summary="Rename a recorded consent")
async def rename(consent_id: ConsentId, request: Request, caller: Writer) -> dict[str, Any]:
    farm = _farm(request)
    name = _new_name(await read_object(request, _BODY_BYTES))
    record = replace(await _find(request, caller, consent_id), name=name)
    if await farm.client.run(put_consent(record, only_if_there=True)) == "unknown":
        raise _not_found()
    await farm.client.wait_durable()
    return _described(record)


@router.delete("/v1/audio/voice_consents/{consent_id}", summary="Withdraw a recorded consent")
async def delete(consent_id: ConsentId, request: Request, caller: Writer) -> dict[str, Any]:
    """The recording goes with it; voices that were uploaded with the consent stay."""
    farm = _farm(request)
    record = await _find(request, caller, consent_id)
    await farm.client.run(drop_consent(caller.project, record.id))
    await farm.client.wait_durable()
    return {"id": record.id, "object": "audio.voice_consent", "deleted": True}


def _record(caller: Caller, name: str, language: str, recording: Recording) -> ConsentRecord:
    consent_id = new_id("cons")
    return ConsentRecord(
        id=consent_id,
        name=name,
        project=caller.project,
        language=language,
        created_at=int(time.time()),
        mime_type=recording.mime_type,
        file_size=len(recording.data),
        recording_key=f"consents/{caller.project}/{consent_id}.{recording.extension}",
    )


def _described(record: ConsentRecord) -> dict[str, Any]:
    return {
        "id": record.id,
        "object": "audio.voice_consent",
        "created_at": record.created_at,
        "name": record.name,
        "language": record.language,
    }


async def _find(request: Request, caller: Caller, consent_id: str) -> ConsentRecord:
    record = await find_consent(_farm(request).client, caller.project, consent_id)
    if record is None:
        raise _not_found()
    return record


def _new_name(body: dict[str, Any]) -> str:
    name = body.get("name")
    if name is None:
        raise ApiError(400, "missing_required_parameter", "name is required", "name")
    if not isinstance(name, str):
        raise ApiError(400, "invalid_type", "name must be a text", "name")
    if not 1 <= len(name.strip()) <= MOST_NAME_CHARS:
        raise ApiError(400, "invalid_value", f"name takes 1 to {MOST_NAME_CHARS} characters", "name")
    return name.strip()


def _not_found() -> ApiError:
    return ApiError(404, "not_found", "there is no such consent")
