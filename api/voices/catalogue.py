"""Every voice that a caller can name: those that models bring, those computed beforehand, and the project's own."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from speechmill.api.callers import Caller
from speechmill.api.farm import FarmState
from speechmill.api.voices.resolve import can_use
from speechmill.infra.voices import VoiceRecord, fold, list_voices
from speechmill.models.card import ModelCard, VoiceKind

DEFAULT = "default"
_KINDS: tuple[VoiceKind, ...] = ("builtin", "precomputed", "uploaded")
_UPLOAD_TYPES = {"audio": "audio_sample", "embedding": "speaker_embedding"}


@dataclass(frozen=True, slots=True)
class Entry:
    """One voice of the catalogue."""

    id: str
    name: str
    type: str
    created_at: int
    source: VoiceKind
    models: tuple[str, ...]
    """Ids of served models that can speak with it."""
    languages: tuple[str, ...]
    record: VoiceRecord | None = None
    """Of an uploaded voice, without its embedding."""

    @property
    def order(self) -> tuple[str, int, str]:
        return fold(self.name), _KINDS.index(self.source), self.id

    def described(self) -> dict[str, Any]:
        """As `data[]` of a list shows it (speech_api §3.1)."""
        return {
            "id": self.id,
            "object": "audio.voice",
            "name": self.name,
            "type": self.type,
            "created_at": self.created_at,
            "source": self.source,
            "models": list(self.models),
            "languages": list(self.languages),
        }


def _union(parts: Iterable[Iterable[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one for part in parts for one in part))


def _builtin(models: Sequence[ModelCard]) -> list[Entry]:
    """A voice that several models bring under one name is one voice."""
    found: dict[str, list[ModelCard]] = {}
    for card in models:
        for voice in card.voices:
            found.setdefault(fold(voice.name), []).append(card)
    return [_builtin_entry(name, cards) for name, cards in found.items()]


def _builtin_entry(folded: str, cards: Sequence[ModelCard]) -> Entry:
    voices = [next(voice for voice in card.voices if fold(voice.name) == folded) for card in cards]
    languages = _union(voice.languages or card.languages for voice, card in zip(voices, cards, strict=True))
    created = min(card.created for card in cards)
    name = voices[0].name
    return Entry(name, name, "builtin", created, "builtin", tuple(card.id for card in cards), languages)


def _precomputed(farm: FarmState) -> list[Entry]:
    entries = []
    for voice in farm.precomputed:
        able = [card for card in farm.models if can_use(card, voice)]
        models, languages = tuple(card.id for card in able), _union(card.languages for card in able)
        created = min(card.created for card in able)
        entries.append(Entry(voice.name, voice.name, "precomputed", created, "precomputed", models, languages))
    return entries


def uploaded_entry(farm: FarmState, record: VoiceRecord) -> Entry:
    able = [card for card in farm.models if can_use(card, record)]
    return Entry(
        record.id,
        record.name,
        _UPLOAD_TYPES[record.kind],
        record.created_at,
        "uploaded",
        tuple(card.id for card in able),
        _union(card.languages for card in able),
        record,
    )


def own_entries(farm: FarmState) -> list[Entry]:
    """What is there without anybody's uploads."""
    return sorted([*_builtin(farm.models), *_precomputed(farm)], key=lambda entry: entry.order)


async def all_entries(farm: FarmState, caller: Caller) -> list[Entry]:
    """By name. Uploaded voices only for those who may read them."""
    entries = own_entries(farm)
    if "voices:read" in caller.scopes:
        entries += [uploaded_entry(farm, record) for record in await list_voices(farm.client, caller.project)]
    return sorted(entries, key=lambda entry: entry.order)


def own_entry(farm: FarmState, name: str) -> Entry | None:
    """The voice of this name that is not anybody's upload."""
    return next((entry for entry in own_entries(farm) if fold(entry.name) == fold(name)), None)


def is_reserved(farm: FarmState, name: str) -> bool:
    """Whether no upload may have this name: it means something already."""
    mapped = {fold(alias) for alias in farm.settings.voices.aliases}
    return fold(name) in {DEFAULT, *mapped} or own_entry(farm, name) is not None
