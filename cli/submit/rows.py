"""Items of a submission as planned, as they stand, and as they end; and the windows in which they are sent."""

import json
from dataclasses import dataclass
from typing import Any, Literal

Status = Literal["pending", "succeeded", "failed", "cancelled", "expired", "rejected"]


@dataclass(frozen=True, slots=True)
class Planned:
    """An item as the sources have it now. `body` is its line of a request, `place` where it stands."""

    name: str
    custom_id: str
    position: int
    place: str
    digest: str
    body: str


@dataclass(frozen=True, slots=True)
class Row:
    """An item as it stands."""

    name: str
    custom_id: str
    position: int
    place: str
    status: Status
    job: str | None
    duration_ms: int | None
    sha256: str | None
    bytes: int | None
    seed: int | None
    finish_reason: str | None
    stamp: int | None
    """Of the file, as its output tells it."""
    error: str | None


@dataclass(frozen=True, slots=True)
class Window:
    """Items that are sent in one request; `group` is what the farm calls them, once it has answered."""

    id: int
    group: str | None


@dataclass(frozen=True, slots=True)
class Ended:
    """How an item has ended."""

    name: str
    status: Status
    job: str | None = None
    duration_ms: int | None = None
    sha256: str | None = None
    bytes: int | None = None
    seed: int | None = None
    finish_reason: str | None = None
    stamp: int | None = None
    error: str | None = None


def dump(fields: dict[str, Any]) -> str:
    """JSON that is the same for the same fields."""
    return json.dumps(fields, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
