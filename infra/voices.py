"""Uploaded voices: one record for each project and name, in Redis, so that every process sees the same at once.

An id names one recording or embedding for ever: a new upload under the same name is a new voice, with a new id and a
version that is newer than any given out before.
"""

import json
import unicodedata
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, cast

import numpy as np

from speechmill.infra.client import AsyncClient
from speechmill.infra.protocol import Call

_JOB_S = 3600
"""The longest that a job may take."""
_SWEEP_S = 660
"""What a job's last reader and the sweeper may add to that."""
GRACE_S = _JOB_S + _SWEEP_S
"""Jobs that were accepted with a voice may read its objects for so long after it is gone."""
MOST_NAME_CHARS = 128
_BESIDE = ("version", "embedding")
"""Fields that do not stand in the record's JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VoiceRecord:
    """One uploaded voice. What does not apply to its kind is empty or 0."""

    id: str
    name: str
    """As given; looked up by `fold`."""
    project: str
    consent: str
    created_at: int
    """Unix seconds."""
    kind: Literal["audio", "embedding"]
    mime_type: str
    """Of the upload, as found in its bytes."""
    file_size: int
    """Bytes of the upload."""
    ref_text: str = ""
    description: str = ""
    model: str = ""
    """The one family that may speak with it; "" for any."""
    sample_key: str = ""
    """Object with the upload as it came."""
    clip_key: str = ""
    """Object with the decoded recording: a mono WAV of float32."""
    clip_sha256: str = ""
    """Of its samples and rate."""
    sample_rate: int = 0
    seconds: float = 0.0
    dim: int = 0
    """Of the embedding."""
    embedding: tuple[float, ...] | None = None
    """Not told in a list of voices."""
    version: int = 0
    """Given by the server."""

    @property
    def objects(self) -> tuple[str, ...]:
        """Stored objects that live and die with the voice."""
        return tuple(key for key in (self.sample_key, self.clip_key) if key)


@dataclass(frozen=True, slots=True)
class Put:
    """The answer to `put_voice`: `ok` with the voice's version, `exists` (policy `immutable`) or `full`."""

    verdict: str
    version: int = 0
    replaced: VoiceRecord | None = None


def fold(name: str) -> str:
    """What names are compared by: case and the way in which accents are encoded make no difference."""
    return unicodedata.normalize("NFC", name.strip().casefold())


def name_fault(name: str) -> str | None:
    """What is wrong with a stripped name, as the rest of a sentence about it (speech_api §3.2); None for nothing."""
    if not 1 <= len(name) <= MOST_NAME_CHARS:
        return f"must have 1 to {MOST_NAME_CHARS} characters"
    if name in (".", "..") or set(name) & {"/", "\\"}:
        return "must not look like a path"
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in name):
        return "must not hold control characters"
    return None


def _dump(record: VoiceRecord) -> str:
    told = {name: value for name, value in asdict(record).items() if name not in _BESIDE}
    return json.dumps({**told, "objects": record.objects})


def _parse(raw: bytes) -> VoiceRecord:
    version, _, text = raw.partition(b" ")
    told: dict[str, Any] = json.loads(text)
    known = {field.name for field in fields(VoiceRecord)}
    return VoiceRecord(**{name: value for name, value in told.items() if name in known}, version=int(version))


def _parse_found(raw: list[bytes] | None) -> VoiceRecord | None:
    if raw is None:
        return None
    record = _parse(raw[0])
    return replace(record, embedding=tuple(np.frombuffer(raw[1], "<f4").tolist())) if record.dim else record


def _parse_put(raw: list[Any]) -> Put:
    return Put(raw[0].decode(), int(raw[1]), _parse(raw[2]) if raw[2] else None)


def check_voice(project: str, name: str, policy: str, most: int) -> Call[str]:
    """Whether `put_voice` would take a voice of this name now: `ok`, `exists` or `full`."""
    return Call("check_voice", (project, fold(name), policy, most), bytes.decode)


def put_voice(record: VoiceRecord, policy: str, most: int) -> Call[Put]:
    """Install a voice in place of the one of the same name, if there is one, or leave everything as it is.

    Its objects are taken off the expiry set, and those of the voice that it replaces are put there.
    """
    embedding = np.array(record.embedding or (), "<f4").tobytes()
    args = (record.project, fold(record.name), policy, most, _dump(record), embedding, GRACE_S)
    return Call("put_voice", args, _parse_put)


def find_voice(project: str, name_or_id: str) -> Call[VoiceRecord | None]:
    """The project's voice of this name, in any case, or of this id."""
    return Call("find_voice", (project, fold(name_or_id), name_or_id), _parse_found)


def drop_voice(project: str, voice_id: str) -> Call[str]:
    """`ok`, or `unknown` when it is gone already. Its objects go when no job can need them any more."""
    return Call("drop_voice", (project, voice_id, GRACE_S), bytes.decode)


def hasten(objects: Iterable[str]) -> Call[str]:
    """What was derived from a voice that is gone, and would be deleted some day, goes together with it."""
    return Call("hasten", (GRACE_S, *objects), bytes.decode)


async def list_voices(client: AsyncClient, project: str) -> list[VoiceRecord]:
    """All voices of a project by name, without embeddings."""
    found = await client.server("control").hvals(client.keys.voices(project))
    return sorted(map(_parse, cast(list[bytes], found)), key=lambda record: fold(record.name))
