"""An uploaded recording: what it is stands in its bytes, and it is stored for a record to claim (speech_api §3.2)."""

import time
from dataclasses import dataclass

from starlette.datastructures import FormData

from speechmill.api.errors import ApiError
from speechmill.api.farm import FarmState
from speechmill.api.http.multipart import file_field
from speechmill.api.references.decode import invalid, sniff
from speechmill.infra.protocol import expire

UNCLAIMED_S = 3600
_OCTETS = "application/octet-stream"
_DECLARED = {f"audio/{kind}" for kind in ("mpeg", "wav", "x-wav", "ogg", "aac", "flac", "webm", "mp4")} | {_OCTETS}
_CONTAINERS = {
    "wav": ("audio/wav", "wav"),
    "mp3": ("audio/mpeg", "mp3"),
    "flac": ("audio/flac", "flac"),
    "ogg": ("audio/ogg", "ogg"),
    "aac": ("audio/aac", "aac"),
    "mp4": ("audio/mp4", "m4a"),
    "matroska": ("audio/webm", "webm"),
}
"""Media type and file name extension by container."""


@dataclass(frozen=True, slots=True)
class Recording:
    data: bytes
    mime_type: str
    extension: str


async def read_recording(form: FormData, field: str) -> Recording | None:
    """The recording in a field of a form; None where there is none.

    Raises ApiError 400 `invalid_value` for a declared type that is no audio, `ref_audio_invalid` for such bytes.
    """
    file = file_field(form, field)
    if file is None:
        return None
    declared = (file.content_type or _OCTETS).partition(";")[0].strip().lower()
    if declared not in _DECLARED:
        raise ApiError(400, "invalid_value", f"{field} must be of a type such as audio/wav or audio/mpeg", field)
    data = await file.read()
    container = sniff(data)
    if container is None:
        raise invalid("it is no wav, mp3, flac, ogg, aac, mp4 or webm", field)
    return Recording(data, *_CONTAINERS[container])


async def store_unclaimed(farm: FarmState, key: str, body: bytes, content_type: str) -> None:
    """Put an object into the store, to be deleted after `UNCLAIMED_S` unless a record claims it."""
    await farm.client.run(expire(key, time.time() + UNCLAIMED_S))
    await farm.in_store(farm.objects.put_once, key, body, content_type)
