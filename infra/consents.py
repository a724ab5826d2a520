"""Recordings in which speakers agree to have their voice used; one record each, in Redis."""

import json
from dataclasses import asdict, dataclass, fields
from typing import cast

from speechmill.infra.client import AsyncClient
from speechmill.infra.protocol import Call


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsentRecord:
    """One recorded consent."""

    id: str
    name: str
    project: str
    language: str
    """BCP-47."""
    created_at: int
    """Unix seconds."""
    mime_type: str
    file_size: int
    recording_key: str
    """Object with the upload as it came."""


def _parse(raw: bytes) -> ConsentRecord:
    known = {field.name for field in fields(ConsentRecord)}
    return ConsentRecord(**{name: value for name, value in json.loads(raw).items() if name in known})


def put_consent(record: ConsentRecord, only_if_there: bool = False) -> Call[str]:
    """Install a record, or replace the one of the same id: `ok`, or `unknown` when it had to be there and is not."""
    told = json.dumps({**asdict(record), "objects": [record.recording_key]})
    return Call("put_consent", (record.project, record.id, told, int(only_if_there)), bytes.decode)


def drop_consent(project: str, consent_id: str) -> Call[str]:
    """`ok` or `unknown`. The recording goes with the next sweep."""
    return Call("drop_consent", (project, consent_id), bytes.decode)


async def find_consent(client: AsyncClient, project: str, consent_id: str) -> ConsentRecord | None:
    raw = await client.server("control").hget(client.keys.consents(project), consent_id)
    return _parse(cast(bytes, raw)) if raw else None


async def list_consents(client: AsyncClient, project: str) -> list[ConsentRecord]:
    """Newest first."""
    found = await client.server("control").hvals(client.keys.consents(project))
    return sorted(map(_parse, cast(list[bytes], found)), key=lambda record: record.id, reverse=True)
