"""What a voice's name means to a model: one of its own, one computed beforehand, or one that the project uploaded."""

from dataclasses import dataclass

from speechmill.api.callers import Caller
from speechmill.api.farm import FarmState
from speechmill.infra.precomputed import PrecomputedVoice
from speechmill.infra.voices import VoiceRecord, find_voice, fold
from speechmill.models.card import ModelCard, VoiceKind


@dataclass(frozen=True, slots=True)
class ResolvedVoice:
    """A voice that exists; `usable` says whether the model that was asked for can speak with it."""

    name: str
    """As its owner wrote it."""
    kind: VoiceKind
    usable: bool
    record: VoiceRecord | PrecomputedVoice | None
    """None for a voice that the model brings."""


def can_use(card: ModelCard, voice: VoiceRecord | PrecomputedVoice) -> bool:
    """Whether a model can speak with a voice that it does not bring itself."""
    can = card.parameters
    kind: VoiceKind = "uploaded" if isinstance(voice, VoiceRecord) else "precomputed"
    family = voice.model if isinstance(voice, VoiceRecord) else voice.family
    return kind in can.voice_kinds and family in ("", card.family) and voice.dim in (0, can.speaker_embedding)


async def resolve_voice(farm: FarmState, caller: Caller, card: ModelCard, name: str) -> ResolvedVoice | None:
    """The voice of this name, in any case, or of this id (speech_api §1.2); None when nobody has it.

    What the model brings goes first, then what was computed for it beforehand, then the project's own.
    """
    if own := card.voice(name):
        return ResolvedVoice(own.name, "builtin", True, None)
    prepared = [voice for voice in farm.precomputed if fold(voice.name) == fold(name)]
    for voice in prepared:
        if can_use(card, voice):
            return ResolvedVoice(voice.name, "precomputed", True, voice)
    if record := await farm.client.run(find_voice(caller.project, name)):
        return ResolvedVoice(record.name, "uploaded", can_use(card, record), record)
    return ResolvedVoice(prepared[0].name, "precomputed", False, prepared[0]) if prepared else None
