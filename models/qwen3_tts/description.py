"""What a checkpoint's `config.json` says that its model's card has to tell. Needs no torch: the API reads it too."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from speechmill.models.card import ModelCard, VoiceCard
from speechmill.models.common.config import count, obj, read_json
from speechmill.models.qwen3_tts.defaults import talker_of
from speechmill.models.stage import CheckpointError

PREFERRED = "vivian"


def default_voice(names: Iterable[str]) -> str:
    """Of a request that names none: the released default where a checkpoint has it, else its first."""
    known = list(names)
    return PREFERRED if PREFERRED in known else next(iter(known), "")


def describe(card: ModelCard, folder: Path) -> ModelCard:
    """The card with the speakers, languages and embeddings of this very checkpoint: whoever tunes one adds his own.

    Raises LookupError, in one line.
    """
    try:
        return read_json(folder / "config.json", lambda config: _described(card, talker_of(config)))
    except CheckpointError as error:
        raise LookupError(str(error)) from None


def _described(card: ModelCard, talker: Mapping[str, Any]) -> ModelCard:
    told = card.model_dump()
    told["languages"] = tuple(_languages(card, obj(talker["codec_language_id"], "codec_language_id")))
    if card.voices:
        voices = list(_voices(card, talker))
        told["voices"] = [voice.model_dump() for voice in voices]
        told["default_voice"] = default_voice(voice.name for voice in voices)
    if card.parameters.speaker_embedding:
        told["parameters"]["speaker_embedding"] = count(talker, "hidden_size")
    return ModelCard.model_validate(told)


def _languages(card: ModelCard, ids: Mapping[str, Any]) -> Iterator[str]:
    """Those of the card that there are, in its order, then all others."""
    known, told = {name.casefold(): name for name in card.languages}, [name.casefold() for name in ids]
    yield from (name for folded, name in known.items() if folded in told)
    yield from (folded.title() for folded in told if folded not in known)


def _voices(card: ModelCard, talker: Mapping[str, Any]) -> Iterator[VoiceCard]:
    """Those of the card that there are, in its order, then all others."""
    names, dialects = obj(talker["spk_id"], "spk_id"), obj(talker.get("spk_is_dialect") or {}, "spk_is_dialect")
    known = {voice.name for voice in card.voices}
    yield from (voice for voice in card.voices if voice.name in names)
    for name in names:
        if name not in known:
            yield _new_voice(name, dialects.get(name))


def _new_voice(name: str, dialect: object) -> VoiceCard:
    if not isinstance(dialect, str):
        return VoiceCard(name=name)
    return VoiceCard(name=name, languages=("Chinese",), description=f"{dialect.replace('_', ' ').capitalize()}.")
