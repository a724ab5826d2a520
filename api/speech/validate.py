"""Whether a model can serve a request: the model's card decides (speech_api §0.4, §1.1, §1.2).

A parameter with a neutral value is always fine; one that the model cannot honour is refused by name, or in a lenient
profile ignored and reported. Nothing here waits for anything.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from speechmill.api.errors import ApiError
from speechmill.api.http.profiles import Profile
from speechmill.api.speech.extra import check_extra
from speechmill.api.speech.languages import choose_language
from speechmill.api.speech.schemas import AUDIO_FORMATS, FLOAT32_MAX, SAMPLE_RATES, SpeechOptions, VoiceObject
from speechmill.configs.settings import Limits
from speechmill.infra.encode import AudioFormat, encoded_rate
from speechmill.infra.segments import clean, pack, split
from speechmill.models.card import ModelCard

MAX_IGNORED = 20
MAX_NAME = 64
Body = TypeVar("Body", bound=BaseModel)
_TYPE_FAULTS = frozenset(
    f"{kind}_type" for kind in ("string", "int", "float", "bool", "dict", "list", "model", "tuple")
) | {"int_from_float", "model_attributes_type", "finite_number"}
_DROPPABLE = (
    *("instructions", "speed", "language", "word_timestamps", "extra_params", "max_new_tokens"),
    *("duration_seconds", "non_streaming_mode"),
)
"""What a lenient profile ignores: none of them changes who speaks or what is said."""


def parse(kind: type[Body], body: Mapping[str, Any]) -> Body:
    """Check the fields' types and bounds. Raises ApiError 400 for the first that is wrong."""
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        faults = error.errors()
        # behind the field stands the branch of a union, or where in a list or an object; clients know the field
        field = str(faults[0]["loc"][0])
        # of a union the branch that was meant is the one that got furthest
        fault = max((one for one in faults if one["loc"][0] == field), key=lambda one: len(one["loc"]))
        raise ApiError(400, _code(fault), f"{field}: {fault['msg']}", field) from None


def _code(fault: ErrorDetails) -> str:
    if fault["type"] == "missing":
        return "missing_required_parameter" if len(fault["loc"]) == 1 else "invalid_type"
    if fault["type"] == "literal_error" and not isinstance(fault["input"], str):
        return "invalid_type"
    return "invalid_type" if fault["type"] in _TYPE_FAULTS else "invalid_value"


def unknown_fields(body: BaseModel, strict: bool) -> tuple[str, ...]:
    """Names of keys that the wire does not know, cleaned for a header. In strict mode they are an error."""
    names = sorted(body.model_extra or {})
    if strict and names:
        name = names[0][:MAX_NAME]
        raise ApiError(400, "unknown_parameter", f"unknown parameter {name!r}", name)
    return cleaned_names(names)


def cleaned_names(names: Iterable[str]) -> tuple[str, ...]:
    """Fit for a header; what nothing remains of is left out."""
    cleaned = (re.sub(r"[^A-Za-z0-9_.-]", "", name[:MAX_NAME]) for name in names)
    return tuple(name for name in cleaned if name)


def unsupported(card: ModelCard, field: str) -> ApiError:
    return ApiError(400, "unsupported_parameter", f"model {card.id} does not support {field!r}", field)


def drop_unsupported(body: SpeechOptions, card: ModelCard) -> tuple[SpeechOptions, tuple[str, ...]]:
    """The body without what a lenient profile ignores, and the names of that."""
    supports = _supports(card, body)
    refused = tuple(name for name in _DROPPABLE if not supports[name]())
    kept = body.model_copy(update=dict.fromkeys(refused))
    known, extra = card.parameters.extra_parameters, kept.extra_params or {}
    kept.extra_params = {name: value for name, value in extra.items() if name in known}
    return kept, (*refused, *(f"extra_params.{name}" for name in cleaned_names(extra.keys() - known.keys())))


def _supports(card: ModelCard, body: SpeechOptions) -> dict[str, Callable[[], bool]]:
    """By field: whether the model honours it, or its value asks for nothing."""
    can = card.parameters
    return {
        "instructions": lambda: can.instructions != "none" or not body.instructions,
        "language": lambda: can.language or (body.language or "auto").casefold() == "auto",
        "ref_audio": lambda: can.ref_audio != "none" or body.ref_audio is None,
        "references": lambda: can.ref_audio != "none" or body.references is None,
        "ref_text": lambda: can.ref_text != "none" or body.ref_text is None,
        "speed": lambda: can.speed.by != "none" or body.speed in (None, 1),
        "task_type": lambda: body.task_type in (None, can.task_type, *can.task_templates),
        "x_vector_only_mode": lambda: can.x_vector or not body.x_vector_only_mode,
        "speaker_embedding": lambda: can.speaker_embedding > 0 or body.speaker_embedding is None,
        "non_streaming_mode": lambda: can.non_streaming_mode or body.non_streaming_mode is None,
        "duration_seconds": lambda: can.duration != "none" or body.duration_seconds is None,
        "max_new_tokens": lambda: can.max_new_tokens > 0 or body.max_new_tokens is None,
        "extra_params": lambda: bool(can.extra_parameters) or not body.extra_params,
        "word_timestamps": lambda: can.word_timestamps or not body.word_timestamps,
        "initial_codec_chunk_frames": lambda: True,
        "ref_audio_2": lambda: body.ref_audio_2 is None,
        "ambient_sound": lambda: body.ambient_sound is None,
    }


def check(body: SpeechOptions, card: ModelCard, limits: Limits) -> None:
    """Raises ApiError 400 for the first field with which this model cannot serve the request."""
    _check_task(body, card)
    for field, supports in _supports(card, body).items():
        if not supports():
            if field == "word_timestamps":
                raise ApiError(400, "aligner_not_available", f"nothing here times the words of {card.id}", field)
            raise unsupported(card, field)
    for name in card.parameters.refused_fields:
        if (body.model_extra or {}).get(name) is not None:
            raise unsupported(card, name)
    _check_instructions(body, card, limits)
    _check_speed(body, card)
    _check_budget(body, card)
    _check_embedding(body, card)
    check_extra(body.extra_params or {}, card)
    choose_language(body.language, card)


def _check_task(body: SpeechOptions, card: ModelCard) -> None:
    """A checkpoint made for one task: the type that is asked for, or that a reference recording means, must be it."""
    own = card.parameters.task_type
    if own is None:
        return
    wanted, why = body.task_type, ""
    if wanted is None and (body.ref_audio is not None or body.ref_text is not None or body.references is not None):
        wanted, why = "Base", ", which a recording and its words mean"
    if wanted is not None and wanted != own:
        message = f"model {card.id} is made for {own}, not for {wanted}{why}"
        raise ApiError(400, "task_model_mismatch", message, "task_type")


def _check_instructions(body: SpeechOptions, card: ModelCard, limits: Limits) -> None:
    can, text = card.parameters, body.instructions or ""
    most = can.instructions_chars or limits.instructions_chars
    if len(text) > most:
        message = f"instructions have {len(text)} characters; at most {most} are taken"
        raise ApiError(400, "instructions_too_long", message, "instructions")
    if can.instructions == "required" and not text.strip():
        raise ApiError(400, "instructions_required", f"model {card.id} needs instructions", "instructions")
    if can.instruction_attributes:
        _check_attributes(text, card)


def _check_attributes(text: str, card: ModelCard) -> None:
    """Instructions that are a list of known attributes, one of each group."""
    groups = card.parameters.instruction_attributes
    group_of = {name.casefold(): group for group in groups for name in group}
    asked = [part.strip().casefold() for part in re.split(r"[,，]", text) if part.strip()]
    if not group_of.keys() >= set(asked):
        message = f"model {card.id} takes a comma-separated list of: {', '.join(sum(groups, ()))}"
        raise ApiError(400, "invalid_value", message, "instructions")
    if len({group_of[name] for name in asked}) < len(asked):
        message = f"model {card.id} takes one each of: {'; '.join(' or '.join(group) for group in groups)}"
        raise ApiError(400, "invalid_value", message, "instructions")


def _check_speed(body: SpeechOptions, card: ModelCard) -> None:
    speed = card.parameters.speed
    if body.speed is not None and speed.by != "none" and not speed.minimum <= body.speed <= speed.maximum:
        message = f"model {card.id} speaks at {speed.minimum} to {speed.maximum} times its normal speed"
        raise ApiError(400, "invalid_value", message, "speed")


def _check_budget(body: SpeechOptions, card: ModelCard) -> None:
    most = card.parameters.max_new_tokens
    if body.max_new_tokens is not None and body.max_new_tokens > most:
        raise ApiError(400, "invalid_value", f"max_new_tokens of {card.id} is at most {most}", "max_new_tokens")


def _check_embedding(body: SpeechOptions, card: ModelCard) -> None:
    embedding, size = body.speaker_embedding, card.parameters.speaker_embedding
    if embedding is None:
        return
    if body.ref_audio is not None or body.references is not None:
        message = "speaker_embedding and ref_audio both say who speaks"
        raise ApiError(400, "mutually_exclusive_parameters", message, "speaker_embedding")
    if len(embedding) != size:
        message = f"speaker_embedding of {card.id} has {size} numbers, not {len(embedding)}"
        raise ApiError(400, "speaker_embedding_dimension", message, "speaker_embedding")
    if not all(abs(value) <= FLOAT32_MAX for value in embedding):
        raise ApiError(400, "invalid_value", "speaker_embedding holds a number beyond float32", "speaker_embedding")


def audio_format(body: SpeechOptions, profile: Profile) -> AudioFormat:
    """Raises ApiError 400 `unsupported_response_format`."""
    name = body.response_format.casefold() if body.response_format is not None else profile.response_format
    if name not in AUDIO_FORMATS:
        message = f"response_format must be one of {', '.join(AUDIO_FORMATS)}"
        raise ApiError(400, "unsupported_response_format", message, "response_format")
    return cast(AudioFormat, name)


def sample_rate(body: SpeechOptions, card: ModelCard, wanted: AudioFormat, profile: Profile) -> int:
    """Of what the client gets. Where the format cannot carry the model's rate, the next one that it can."""
    if body.sample_rate is None:
        if profile.pcm_rate is not None and wanted in ("pcm", "wav"):
            return profile.pcm_rate
        return encoded_rate(wanted, card.sample_rate)
    known = (*SAMPLE_RATES, card.sample_rate)
    if body.sample_rate not in known or encoded_rate(wanted, body.sample_rate) != body.sample_rate:
        offered = sorted({rate for rate in known if encoded_rate(wanted, rate) == rate})
        message = f"sample_rate for {wanted} must be one of {', '.join(map(str, offered))}"
        raise ApiError(400, "unsupported_sample_rate", message, "sample_rate")
    return body.sample_rate


def text_of(text: str, body: SpeechOptions, card: ModelCard, most_chars: int) -> str:
    """The text to speak, cleaned. Raises ApiError 400 `empty_input`, `input_too_long` or `unsupported_parameter`."""
    cleaned = clean(text).strip()
    can = card.parameters
    if not cleaned and not (can.instructions_replace_input and (body.instructions or "").strip()):
        raise ApiError(400, "empty_input", "input holds no text", "input")
    if len(cleaned) > most_chars:
        message = f"input has {len(cleaned)} characters; at most {most_chars} are taken"
        raise ApiError(400, "input_too_long", message, "input")
    for param, words in (("input", cleaned), ("ref_text", body.ref_text or "")):
        if can.refused_input and re.search(can.refused_input, words):
            raise ApiError(400, "unsupported_parameter", f"model {card.id} does not take the tags in this text", param)
    return cleaned


def segments_of(text: str, body: SpeechOptions, card: ModelCard) -> tuple[str, ...]:
    """Pieces that the model speaks safely. Raises ApiError 400 `input_too_long` where cutting is forbidden."""
    if body.split_text != "none":
        rules = card.segments
        cut = pack(text, rules.max_chars, rules.turn_tag) if rules.packed else split(text, rules.max_chars)
        return tuple(cut) or (text,)
    if len(text) > card.segments.max_chars:
        message = f"model {card.id} speaks {card.segments.max_chars} characters at once; leave split_text at 'auto'"
        raise ApiError(400, "input_too_long", message, "input")
    return (text,)


def voice_name(body: SpeechOptions) -> tuple[str, str]:
    """The voice that is asked for ("" for the model's own), and the field that asks. Raises ApiError 400."""
    name = body.voice.id if isinstance(body.voice, VoiceObject) else body.voice
    if name and body.speaker and name.casefold() != body.speaker.casefold():
        raise ApiError(400, "mutually_exclusive_parameters", "voice and speaker name different voices", "voice")
    asked, field = (name, "voice") if name else (body.speaker or "", "speaker")
    return ("", field) if asked.casefold() == "default" else (asked, field)


def reference(body: SpeechOptions, card: ModelCard) -> tuple[str | None, str | None]:
    """Recording and transcript, in whichever way they are given; a blank transcript is none. Raises ApiError 400."""
    audio, text = body.ref_audio, body.ref_text
    if isinstance(audio, list):
        if len(audio) != 1:
            raise ApiError(400, "unsupported_parameter", f"model {card.id} takes one reference recording", "ref_audio")
        audio = audio[0]
    if body.references is None:
        return audio, _said(text)
    if len(body.references) != 1:
        raise ApiError(400, "invalid_value", "references must hold exactly one", "references")
    (both,) = body.references
    if (audio not in (None, both.audio_path)) or (both.text is not None and text not in (None, both.text)):
        message = "references and ref_audio or ref_text are different"
        raise ApiError(400, "mutually_exclusive_parameters", message, "references")
    return both.audio_path, _said(both.text if both.text is not None else text)


def _said(transcript: str | None) -> str | None:
    return transcript if transcript and transcript.strip() else None
