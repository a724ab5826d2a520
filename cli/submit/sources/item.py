"""One text to speak, as a source tells it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Item:
    """`request` and `terms` are fields of the API: those of `POST /v1/audio/speech`, and those of a job around it."""

    where: str
    """For messages: file and line."""
    request: Mapping[str, Any]
    terms: Mapping[str, Any] = field(default_factory=dict)

    @property
    def custom_id(self) -> str | None:
        """The user's own name of it."""
        name: str | None = self.terms.get("custom_id")
        return name
