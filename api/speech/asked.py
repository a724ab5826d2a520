"""A request as its client gave it, to be shown again, with digests in place of audio (speech_api §5.4.2)."""

import asyncio
import binascii
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from speechmill.infra.files import is_file_id

_REFERENCES = ("http://", "https://", "file://")


async def asked_text(fields: Mapping[str, Any], upload: bytes | None) -> str:
    """The fields as JSON. `upload` is a recording that came beside them."""
    if upload is None and all(fields.get(name) is None for name in ("ref_audio", "references")):
        return json.dumps(fields, ensure_ascii=False)
    return await asyncio.to_thread(_without_audio, fields, upload)


def _without_audio(fields: Mapping[str, Any], upload: bytes | None) -> str:
    shown = dict(fields)
    if upload is not None:
        shown["ref_audio"] = _digest(upload)
    elif isinstance(audio := fields.get("ref_audio"), list):
        shown["ref_audio"] = [_shown(one) for one in audio]
    elif audio is not None:
        shown["ref_audio"] = _shown(audio)
    if isinstance(references := fields.get("references"), list):
        shown["references"] = [{**one, "audio_path": _shown(one["audio_path"])} for one in references]
    return json.dumps(shown, ensure_ascii=False)


def _shown(source: str) -> str | dict[str, object]:
    """A URL or the id of a file stays; base64, bare or in a data URL, is audio."""
    if source.lower().startswith(_REFERENCES) or is_file_id(source):
        return source
    text = source.partition(",")[2] if source.startswith("data:") else source
    return _digest(binascii.a2b_base64(text))


def _digest(audio: bytes) -> dict[str, object]:
    return {"sha256": hashlib.sha256(audio).hexdigest(), "bytes": len(audio)}
