"""From a request body to a job: the model's card decides what is accepted.

A parameter with a neutral value is always fine; one that the model cannot honour is refused by name, never dropped.
"""

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from pydantic import ValidationError

from speechmill.api.errors import ApiError
from speechmill.api.schemas import AUDIO_FORMATS, INT64, SAMPLE_RATES, SpeechBody, VoiceObject
from speechmill.configs.settings import Settings
from speechmill.infra.encode import AudioFormat, encoded_rate
from speechmill.infra.messages import SpeechRequest
from speechmill.infra.segments import clean, split
from speechmill.models.card import ModelCard

Mode = Literal["buffered", "raw"]
MAX_IGNORED = 20
MAX_NAME = 64
_KNOWN = set(SpeechBody.model_fields)
_CODES = {
    "missing": "missing_required_parameter",
    "string_type": "invalid_type",
    "int_type": "invalid_type",
    "float_type": "invalid_type",
    "bool_type": "invalid_type",
    "dict_type": "invalid_type",
    "list_type": "invalid_type",
    "model_type": "invalid_type",
    "int_from_float": "invalid_type",
}


@dataclass(frozen=True, slots=True)
class Order:
    """A request that the model can serve."""

    card: ModelCard
    voice: str
    segments: tuple[str, ...]
    request: SpeechRequest
    audio_format: AudioFormat
    mode: Mode
    timeout_s: float
    job_class: str
    store: bool
    word_timestamps: bool
    chars: int
    ignored: tuple[str, ...]


def parse(body: dict[str, Any]) -> SpeechBody:
    """Check the fields' types and bounds. Raises ApiError 400 for the first that is wrong."""
    try:
        return SpeechBody.model_validate(body)
    except ValidationError as error:
        fault = error.errors()[0]
        # a union's branches stand behind the field in the location; clients know the field only
        field = str(fault["loc"][0])
        code = _CODES.get(fault["type"], "invalid_value")
        raise ApiError(400, code, f"{field}: {fault['msg']}", field) from None


def unknown_fields(body: SpeechBody, strict: bool) -> tuple[str, ...]:
    """Names of keys that the wire does not know, cleaned for a header. In strict mode they are an error."""
    names = sorted(body.model_extra or {})
    if strict and names:
        name = names[0][:MAX_NAME]
        raise ApiError(400, "unknown_parameter", f"unknown parameter {name!r}", name)
    cleaned = (re.sub(r"[^A-Za-z0-9_.-]", "", name[:MAX_NAME]) for name in names)
    return tuple(name for name in cleaned if name)[:MAX_IGNORED]


def order(body: SpeechBody, card: ModelCard, settings: Settings, ignored: tuple[str, ...] = ()) -> Order:
    """What is to be made. Raises ApiError 400 for what the model cannot do."""
    _refuse_unsupported(body, card)
    audio_format = _audio_format(body)
    text = _text(body, settings.limits.sync_input_chars)
    speed = float(body.speed or 1.0)
    seed = body.seed if body.seed is not None else secrets.randbelow(INT64)
    native = card.parameters.speed.by == "native"
    store = bool(body.store)
    request = SpeechRequest(
        voice=_voice(body, card),
        seed=seed,
        response_format=audio_format,
        sample_rate=_sample_rate(body, card, audio_format),
        channels=card.channels,
        params={"speed": speed} if native else {},
        stretch=1.0 if native else speed,
        silence_ms=card.segments.silence_ms if body.segment_silence_ms is None else body.segment_silence_ms,
        keep_s=settings.retention.result_s if store else settings.retention.sync_result_s,
    )
    return Order(
        card=card,
        voice=request.voice,
        segments=_segments(text, body, card),
        request=request,
        audio_format=audio_format,
        mode="raw" if body.stream_format == "audio" else "buffered",
        timeout_s=min(float(body.timeout_seconds or settings.limits.sync_timeout_s), 3600.0),
        job_class=body.priority or "interactive",
        store=store,
        word_timestamps=bool(body.word_timestamps),
        chars=len(text),
        ignored=ignored,
    )


def _unsupported(card: ModelCard, field: str) -> ApiError:
    return ApiError(400, "unsupported_parameter", f"model {card.id} does not support {field!r}", field)


def _refuse_unsupported(body: SpeechBody, card: ModelCard) -> None:
    """Known parameters with a value that is not neutral, which this model has no use for."""
    if body.stream_format == "sse" or (body.stream and body.stream_format is None):
        raise ApiError(
            400,
            "unsupported_parameter",
            "server-sent events are not served; use stream_format 'audio'",
            "stream_format" if body.stream_format else "stream",
        )
    can = card.parameters
    allowed = {
        "instructions": can.instructions != "none" or not body.instructions,
        "language": can.language or (body.language or "auto").casefold() == "auto",
        "ref_audio": can.ref_audio != "none",
        "ref_text": can.ref_text != "none",
        "references": can.ref_audio != "none",
        "word_timestamps": can.word_timestamps or not body.word_timestamps,
        "max_new_tokens": can.max_new_tokens > 0,
        "extra_params": body.extra_params == {},
        "initial_codec_chunk_frames": True,
        "speed": can.speed.by != "none" or body.speed == 1,
    }
    no_model_has = (
        "task_type",
        "x_vector_only_mode",
        "speaker_embedding",
        "non_streaming_mode",
        "duration_seconds",
        "ref_audio_2",
        "ambient_sound",
    )
    for field in (*allowed, *no_model_has):
        if getattr(body, field) is not None and not allowed.get(field, False):
            raise _unsupported(card, field)
    if body.word_timestamps and body.stream_format == "audio":
        raise ApiError(400, "unsupported_parameter", "a raw stream has no place for word times", "word_timestamps")
    _check_speed(body, card)


def _check_speed(body: SpeechBody, card: ModelCard) -> None:
    speed = card.parameters.speed
    if body.speed is not None and speed.by == "native" and not speed.minimum <= body.speed <= speed.maximum:
        message = f"model {card.id} speaks at {speed.minimum} to {speed.maximum} times its normal speed"
        raise ApiError(400, "invalid_value", message, "speed")


def _audio_format(body: SpeechBody) -> AudioFormat:
    name = (body.response_format or "wav").casefold()
    if name not in AUDIO_FORMATS:
        message = f"response_format must be one of {', '.join(AUDIO_FORMATS)}"
        raise ApiError(400, "unsupported_response_format", message, "response_format")
    return cast(AudioFormat, name)


def _sample_rate(body: SpeechBody, card: ModelCard, audio_format: AudioFormat) -> int:
    """Of what the client gets. Where the format cannot carry the model's rate, the next one that it can."""
    if body.sample_rate is None:
        return encoded_rate(audio_format, card.sample_rate)
    known = (*SAMPLE_RATES, card.sample_rate)
    if body.sample_rate not in known or encoded_rate(audio_format, body.sample_rate) != body.sample_rate:
        offered = sorted({rate for rate in known if encoded_rate(audio_format, rate) == rate})
        message = f"sample_rate for {audio_format} must be one of {', '.join(map(str, offered))}"
        raise ApiError(400, "unsupported_sample_rate", message, "sample_rate")
    return body.sample_rate


def _text(body: SpeechBody, limit: int) -> str:
    text = clean(body.input).strip()
    if not text:
        raise ApiError(400, "empty_input", "input holds no text", "input")
    if len(text) > limit:
        raise ApiError(400, "input_too_long", f"input has {len(text)} characters; at most {limit} are taken", "input")
    return text


def _voice(body: SpeechBody, card: ModelCard) -> str:
    name = body.voice.id if isinstance(body.voice, VoiceObject) else body.voice
    if name and body.speaker and name.casefold() != body.speaker.casefold():
        raise ApiError(400, "mutually_exclusive_parameters", "voice and speaker name different voices", "voice")
    voice = card.voice(name or body.speaker)
    if voice is None:
        message = f"model {card.id} has no such voice; it has {', '.join(v.name for v in card.voices)}"
        raise ApiError(400, "invalid_voice", message, "voice" if name else "speaker")
    return voice.name


def _segments(text: str, body: SpeechBody, card: ModelCard) -> tuple[str, ...]:
    if body.split_text != "none":
        return tuple(split(text, card.segments.max_chars))
    if len(text) > card.segments.max_chars:
        message = f"model {card.id} speaks {card.segments.max_chars} characters at once; leave split_text at 'auto'"
        raise ApiError(400, "input_too_long", message, "input")
    return (text,)


def choose_card(name: str | None, served: Sequence[ModelCard], default: str) -> ModelCard:
    """The card that a request's `model` means. Raises ApiError 404, or 400 when it must be given."""
    by_id = {card.id: card for card in served}
    if name is None:
        if len(served) != 1 and default not in by_id:
            raise ApiError(400, "missing_required_parameter", "several models are served: name one", "model")
        return by_id.get(default, served[0])
    if name not in by_id:
        raise ApiError(404, "model_not_found", f"model {name!r} is not served; see GET /v1/models", "model")
    return by_id[name]
