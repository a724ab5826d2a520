"""Events as the outside is told of them (speech_api §5.5): from an entry of the outbox to a body."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from speechmill.infra.keys import new_id

MAX_BODY = 20_480
"""Bytes of a body."""
LINK_BYTES = 4096
"""Of them, what a link to the result may take."""
Fields = Mapping[bytes, bytes]


@dataclass(frozen=True, slots=True)
class JobWebhook:
    """A URL that one job brought with it, and what it is told of; () is every end of the job."""

    url: str
    events: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened in a project."""

    project: str
    message: dict[str, Any]
    """The body, as a JSON object."""
    result_key: str = ""
    """Object with the audio that it tells of."""
    result_type: str = ""
    """Its media type."""
    webhook: JobWebhook | None = None

    @property
    def type(self) -> str:
        return str(self.message["type"])


def message(event_type: str, happened_s: float, data: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a new event, with an id that stays the same in every try. `happened_s` in Unix seconds."""
    at = datetime.fromtimestamp(int(happened_s), UTC)
    return {
        "id": new_id("evt"),
        "object": "event",
        "type": event_type,
        "created_at": int(happened_s),
        "timestamp": at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "data": dict(data),
    }


def encode(body: Mapping[str, Any]) -> bytes:
    """Compact JSON: what is signed and sent."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def read_event(entry: bytes, fields: Fields, result: Mapping[str, Any] | None) -> Event:
    """An event from its entry in the outbox; `result` is the job's own, as long as it is known.

    Raises ValueError or KeyError for an entry that is none.
    """
    event_type, happened_s = fields[b"type"].decode(), int(entry.partition(b"-")[0]) / 1000
    data = _job(fields, event_type, result) if b"job" in fields else json.loads(fields[b"data"])
    body = message(event_type, happened_s, data)
    if len(encode(body)) > MAX_BODY - LINK_BYTES and "metadata" in data:
        body["data"]["metadata"] = {}  # the job itself still shows it
    key, media_type = (str(result["key"]), str(result["media_type"])) if result else ("", "")
    return Event(fields[b"project"].decode(), body, key, media_type, _webhook(fields.get(b"webhook")))


def _job(fields: Fields, event_type: str, result: Mapping[str, Any] | None) -> dict[str, Any]:
    return {
        "id": fields[b"job"].decode(),
        "status": event_type.rpartition(".")[2],
        "custom_id": _text(fields.get(b"custom_id")),
        "group_id": _text(fields.get(b"group_id")),
        "metadata": json.loads(fields.get(b"metadata") or b"{}"),
        "duration_ms": result["duration_ms"] if result else None,
    }


def _text(raw: bytes | None) -> str | None:
    return raw.decode() if raw else None


def _webhook(raw: bytes | None) -> JobWebhook | None:
    if not raw:
        return None
    told = json.loads(raw)
    return JobWebhook(told["url"], tuple(told.get("events") or ()))
