"""Who speaks: a voice by name, a reference recording, or a vector (speech_api §1.1 to §1.3)."""

import math
from dataclasses import dataclass, field, replace
from typing import Any

from speechmill.api.callers import Caller
from speechmill.api.errors import ApiError
from speechmill.api.farm import FarmState
from speechmill.api.references.decode import decode_clip
from speechmill.api.references.encode import reference_assets
from speechmill.api.references.load import keep_clip, load_reference
from speechmill.api.speech import validate
from speechmill.api.speech.schemas import SpeechBody
from speechmill.api.voices.resolve import ResolvedVoice, resolve_voice
from speechmill.infra.precomputed import PrecomputedVoice
from speechmill.infra.voices import VoiceRecord
from speechmill.models.card import EncodeCard, ModelCard

OPENAI_VOICES = frozenset(
    {"alloy", "ash", "ballad", "cedar", "coral", "echo", "fable"}
    | {"marin", "nova", "onyx", "sage", "shimmer", "verse"}
)
"""OpenAI's clients name one of these whatever the server has."""
VECTOR_MODE = "xvec"
IN_CONTEXT_MODE = "icl"


@dataclass(frozen=True, slots=True)
class StoredClip:
    """A decoded recording in the store."""

    key: str
    sha256: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Speaker:
    """What the workers are told."""

    name: str = ""
    """Of a voice of the model, or the id of an uploaded one; "" where the request itself brings the speaker."""
    shown: str = ""
    """The voice as the client is told."""
    params: dict[str, Any] = field(default_factory=dict)
    assets: dict[str, str] = field(default_factory=dict)
    """Objects in the store by what they are to the model: `clip` or `features`."""
    frames: int = 0
    """Codec frames of a reference recording that the model hears."""


async def choose_speaker(
    farm: FarmState, caller: Caller, body: SpeechBody, card: ModelCard, upload: bytes | None, lasting_s: float
) -> Speaker:
    """A recording is kept for at least `lasting_s` seconds.

    Raises ApiError for whatever the request lacks or the model cannot use.
    """
    recording, transcript = validate.reference(body, card)
    recorded = recording is not None or upload is not None
    voice = await _named(farm, caller, card, body, alone=not recorded and body.speaker_embedding is None) or _own(card)
    if body.speaker_embedding is not None:
        return Speaker(params={"speaker_embedding": body.speaker_embedding})
    _require(body, card, voice, recorded, transcript)
    if recorded:
        return await _recorded(farm, caller, body, card, recording, upload, transcript, lasting_s)
    if voice is None:
        return Speaker()
    if voice.record is None:
        return Speaker(voice.name, voice.name)
    if isinstance(voice.record, PrecomputedVoice):
        return _precomputed(voice.record, card, transcript, bool(body.x_vector_only_mode))
    return await _uploaded(farm, caller, body, card, voice.record, transcript)


def _precomputed(record: PrecomputedVoice, card: ModelCard, transcript: str | None, by_timbre: bool) -> Speaker:
    mode, words = (VECTOR_MODE, "") if by_timbre else (record.mode, transcript or record.ref_text)
    if mode == IN_CONTEXT_MODE and not words:
        raise ApiError(400, "ref_text_required", f"model {card.id} needs the words of the voice's sample", "ref_text")
    params = {"voice_mode": mode, **({"ref_text": words} if words else {})}
    frames = 0 if mode == VECTOR_MODE else record.frames
    return Speaker(record.name, record.name, params, {"features": record.payload_key}, frames)


async def _uploaded(
    farm: FarmState, caller: Caller, body: SpeechBody, card: ModelCard, record: VoiceRecord, transcript: str | None
) -> Speaker:
    if record.embedding is not None:
        return Speaker(record.id, record.name, {"speaker_embedding": list(record.embedding)})
    can, words = card.parameters, transcript or record.ref_text
    may_do_without = can.x_vector and body.x_vector_only_mode is not False
    if not words and can.ref_text in ("required", "with_ref_audio") and not may_do_without:
        raise ApiError(400, "ref_text_required", f"model {card.id} needs the words of the voice's sample", "ref_text")
    by_timbre = bool(body.x_vector_only_mode) or (can.x_vector and not words)
    clip = StoredClip(record.clip_key, record.clip_sha256, record.seconds)
    cloned = await _cloned(farm, caller, body, card, clip, words, by_timbre)
    return replace(cloned, name=record.id, shown=record.name)


def _require(
    body: SpeechBody, card: ModelCard, voice: ResolvedVoice | None, recorded: bool, transcript: str | None
) -> None:
    can = card.parameters
    if not recorded and ((voice is None and can.ref_audio == "required") or (transcript and not _is_recorded(voice))):
        needed = ["a reference recording", *["a voice made of one"] * ("uploaded" in can.voice_kinds)]
        needed += ["a speaker embedding"] * bool(can.speaker_embedding)
        raise ApiError(400, "ref_audio_required", f"model {card.id} needs {' or '.join(needed)}", "ref_audio")
    if not recorded and voice is None and can.voice == "or_ref_audio":
        raise ApiError(400, "voice_required", f"model {card.id} needs a voice or a reference recording", "voice")
    if recorded and not transcript and not body.x_vector_only_mode and can.ref_text in ("required", "with_ref_audio"):
        other = ", or x_vector_only_mode" if can.x_vector else ""
        message = f"model {card.id} needs the words of the recording{other}"
        raise ApiError(400, "ref_text_required", message, "ref_text")
    if can.duration == "without_ref_audio" and not recorded and body.duration_seconds is None:
        message = f"model {card.id} needs a duration where there is no reference recording"
        raise ApiError(400, "duration_required", message, "duration_seconds")


def _is_recorded(voice: ResolvedVoice | None) -> bool:
    """Whether somebody's recording is behind the voice, in which something is said."""
    return voice is not None and voice.record is not None


def _own(card: ModelCard) -> ResolvedVoice | None:
    """The voice of those who name none. None where the model does without."""
    own = card.voice(None)
    return ResolvedVoice(own.name, "builtin", True, None) if own else None


async def _named(
    farm: FarmState, caller: Caller, card: ModelCard, body: SpeechBody, alone: bool
) -> ResolvedVoice | None:
    """The voice that is asked for. None for none, and for a name of OpenAI's that means nothing here.

    `alone`: nothing else in the request says who speaks.
    """
    asked, asking = validate.voice_name(body)
    if not asked:
        return None
    meant = asked if card.voice(asked) else farm.settings.voices.aliases.get(asked.casefold(), asked)
    found = await resolve_voice(farm, caller, card, meant)
    if asked.casefold() in OPENAI_VOICES:
        return found if found is not None and found.usable and alone else None
    if found is None:
        if any(other.voice(asked) for other in farm.models):
            raise _unusable(card, asking)
        raise ApiError(400, "invalid_voice", f"there is no such voice for {card.id}; see GET /v1/audio/voices", asking)
    _check_usable(found, card, asking)
    if not alone:
        message = f"{asking} and a recording or an embedding both say who speaks"
        raise ApiError(400, "mutually_exclusive_parameters", message, asking)
    return found


def _check_usable(voice: ResolvedVoice, card: ModelCard, asking: str) -> None:
    """An existing voice may be of a kind, or for a model, that is not this one's."""
    can = card.parameters
    if can.voice != "none" and voice.usable:
        return
    if can.task_type not in (None, "Base") and voice.kind != "builtin":
        message = f"model {card.id} is made for {can.task_type}; a recorded voice needs a Base model"
        raise ApiError(400, "task_model_mismatch", message, asking)
    raise _unusable(card, asking)


def _unusable(card: ModelCard, asking: str) -> ApiError:
    return ApiError(400, "unsupported_parameter", f"model {card.id} cannot speak with this voice", asking)


async def _recorded(
    farm: FarmState,
    caller: Caller,
    body: SpeechBody,
    card: ModelCard,
    recording: str | None,
    upload: bytes | None,
    transcript: str | None,
    lasting_s: float,
) -> Speaker:
    if upload is not None:
        clip = await decode_clip(upload, farm.settings, "ref_audio")
    else:
        assert recording is not None
        clip = await load_reference(recording, farm, caller)
    key = await keep_clip(farm, caller.project, clip, lasting_s)
    stored = StoredClip(key, clip.sha256, clip.seconds)
    return await _cloned(farm, caller, body, card, stored, transcript, bool(body.x_vector_only_mode))


async def _cloned(
    farm: FarmState,
    caller: Caller,
    body: SpeechBody,
    card: ModelCard,
    clip: StoredClip,
    transcript: str | None,
    by_timbre: bool,
) -> Speaker:
    """`by_timbre`: the model is told how the speaker sounds, but does not hear the recording itself."""
    params: dict[str, Any] = {"x_vector_only_mode": True} if by_timbre else {}
    if transcript and not by_timbre:
        params["ref_text"] = transcript
    mode = _mode(body, card.encode, transcript, by_timbre) if card.encode else ""
    assets = await reference_assets(farm, caller, card, clip.key, clip.sha256, mode)
    heard = bool(transcript) and not by_timbre
    frames = math.ceil(round(clip.seconds * card.stages[0].rate, 3)) if heard else 0
    return Speaker(params=params, assets=assets, frames=frames)


def _mode(body: SpeechBody, encode: EncodeCard, transcript: str | None, by_timbre: bool) -> str:
    """How the model is to read the recording. Raises ApiError 400 `ref_text_required`."""
    if by_timbre and VECTOR_MODE in encode.modes:
        return VECTOR_MODE
    asked = (body.extra_params or {}).get(encode.chosen_by)
    mode = str(asked or (encode.spoken_mode if transcript else "") or encode.modes[0])
    if asked and mode != encode.modes[0] and not transcript:
        message = f"{encode.chosen_by} {mode!r} needs the words of the recording"
        raise ApiError(400, "ref_text_required", message, "ref_text")
    return mode
