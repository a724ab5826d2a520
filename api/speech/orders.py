"""From a request to an order: model, profile, voice and reference are looked up, and what the workers need is put down.

Everything that can be wrong with a request is found here, before anything is queued.
"""

import asyncio
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from starlette.requests import HTTPConnection

from speechmill.api.callers import Caller, profile_of
from speechmill.api.errors import ApiError
from speechmill.api.farm import FarmState
from speechmill.api.http.idempotency import ONCE
from speechmill.api.http.profiles import Profile
from speechmill.api.speech import validate
from speechmill.api.speech.asked import asked_text
from speechmill.api.speech.languages import choose_language
from speechmill.api.speech.schemas import INT64, SpeechBody
from speechmill.api.speech.speakers import Speaker, choose_speaker
from speechmill.api.speech.terms import Terms, call_terms
from speechmill.api.stored_sound import LOSSLESS
from speechmill.infra.encode import AudioFormat
from speechmill.infra.messages import SpeechRequest
from speechmill.models.card import ModelCard

Mode = Literal["buffered", "raw", "sse", "ws"]
LONG_CHARS = 20_000
FAULTS = ("zero_audio", "mid_stream", "slow", "worker_crash")
MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class Order:
    """A request that the model can serve."""

    card: ModelCard
    voice: str
    """As the client is told; "" for none."""
    segments: tuple[str, ...]
    request: SpeechRequest
    audio_format: AudioFormat
    mode: Mode
    terms: Terms
    word_timestamps: bool
    chars: int
    """Of input and instructions."""
    reference_frames: int
    """Codec frames of the reference recording that the model hears, where it is cloned in context."""
    ignored: tuple[str, ...]
    asked: str
    """The fields as they were given, as JSON without audio."""
    once: str
    """Names all repetitions of this very request, which are one job; "" where it is none of such."""

    @property
    def detached(self) -> bool:
        """The job goes on although whoever listens leaves (speech_api §1.8)."""
        return self.terms.detached or bool(self.once)


@dataclass(frozen=True, slots=True)
class Asker:
    """What is known of a request besides its body."""

    farm: FarmState
    caller: Caller
    connection: HTTPConnection

    @property
    def strict(self) -> bool:
        asked = self.connection.headers.get("x-strict-params", "").casefold() == "true"
        return asked or self.farm.settings.api.strict_params

    def model(self, name: str | None) -> tuple[ModelCard, Profile]:
        """The card that `model` means, by id or alias, and the profile that goes with it. Raises ApiError."""
        farm, caller = self.farm, self.caller
        if not name and len(farm.models) > 1 and not farm.settings.default_model:
            told = f"several models are served: name one of {self._served}"
            raise ApiError(400, "missing_required_parameter", told, "model")
        card = farm.meant(name or farm.settings.meant_model)
        if card is None:
            told = f"no model {name!r} is served here; there is {self._served}"
            raise ApiError(404, "model_not_found", told, "model")
        if caller.models and card.id not in caller.models and name not in caller.models:
            raise ApiError(403, "permission_denied", f"this key may not use {card.id}", "model")
        alias = farm.settings.aliases.get(name or "") if name != card.id else None
        default = farm.settings.api.default_profile
        return card, profile_of(self.connection, caller, default, alias.profile if alias else None)

    @property
    def _served(self) -> str:
        """For messages: models by their ids, not too many of them."""
        ids = [card.id for card in self.farm.models]
        more = " and more, see GET /v1/models" if len(ids) > MOST_NAMED else ""
        return ", ".join(ids[:MOST_NAMED]) + more

    @property
    def once(self) -> str:
        """Names all repetitions of the request; "" where it has no idempotency key."""
        return str(self.connection.scope.get(ONCE, ""))

    @property
    def fault(self) -> str | None:
        """The failure that a test farm is asked to show."""
        asked = self.connection.headers.get("x-test-fault")
        if asked is None or not self.farm.settings.test.fault_injection:
            return None
        if asked not in FAULTS:
            raise ApiError(400, "invalid_value", f"X-Test-Fault is one of {', '.join(FAULTS)}")
        return asked


async def make_order(
    asker: Asker,
    fields: Mapping[str, Any],
    streams_on: Literal["http", "ws"] = "http",
    upload: bytes | None = None,
    terms: Terms | None = None,
) -> Order:
    """What is to be made. `upload` is a reference recording that came beside the fields; `terms` are given for what
    nobody waits for. Raises ApiError.
    """
    body = validate.parse(SpeechBody, fields)
    ignored = validate.unknown_fields(body, asker.strict)
    card, profile = asker.model(body.model)
    ignored = tuple(name for name in ignored if name not in card.parameters.refused_fields)
    if profile.lenient:
        kept, dropped = validate.drop_unsupported(body, card)
        body, ignored = body.model_validate(kept.model_dump(exclude_unset=True)), (*ignored, *dropped)
    if upload is not None and (body.ref_audio is not None or body.references is not None):
        raise ApiError(400, "mutually_exclusive_parameters", "ref_audio is given twice", "ref_audio")
    limits = asker.farm.settings.limits
    validate.check(body if upload is None else body.model_copy(update={"ref_audio": "upload"}), card, limits)
    mode: Mode = "ws" if streams_on == "ws" else "buffered" if terms else _mode(body, profile)
    terms = terms or call_terms(body, asker.caller, asker.farm.settings)
    if mode == "raw" and body.word_timestamps:
        message = "a raw stream has no place for word times"
        raise ApiError(400, "unsupported_parameter", message, "word_timestamps")
    wanted = validate.audio_format(body, profile)
    rate = validate.sample_rate(body, card, wanted, profile)
    text = validate.text_of(body.input, body, card, terms.max_chars)
    segments = await _segments(text, body, card)
    began = time.monotonic()
    try:
        async with asyncio.timeout(terms.timeout_s):
            speaker = await choose_speaker(asker.farm, asker.caller, body, card, upload, terms.lasting_s)
    except TimeoutError:
        message = "the recording was not fetched and read by the model in time"
        raise ApiError(504, "deadline_exceeded", message) from None
    terms = replace(terms, timeout_s=max(terms.timeout_s - (time.monotonic() - began), 0.0))
    request = _request(asker, body, card, wanted, rate, speaker, terms)
    return Order(
        card=card,
        voice=speaker.shown,
        segments=segments,
        request=request,
        audio_format=wanted,
        mode=mode,
        terms=terms,
        word_timestamps=bool(body.word_timestamps),
        chars=len(text) + len(body.instructions or ""),
        reference_frames=speaker.frames,
        ignored=tuple(sorted(ignored))[: validate.MAX_IGNORED],
        asked=await asked_text(fields, upload),
        once=asker.once,
    )


def opened(wanted: Order) -> Order:
    """The same order where its text is only the beginning of one that is still being written."""
    return replace(wanted, segments=("",), request=replace(wanted.request, open_text=True), once="")


async def _segments(text: str, body: SpeechBody, card: ModelCard) -> tuple[str, ...]:
    """A book is cut beside the event loop."""
    if len(text) <= LONG_CHARS:
        return validate.segments_of(text, body, card)
    return await asyncio.to_thread(validate.segments_of, text, body, card)


def _mode(body: SpeechBody, profile: Profile) -> Mode:
    if body.stream_format == "audio":
        return "raw"
    if body.stream_format == "sse" or body.stream:
        return "sse"
    unsaid = body.stream is None and body.stream_format is None
    return "raw" if unsaid and profile.streams and not body.word_timestamps else "buffered"


def _request(
    asker: Asker, body: SpeechBody, card: ModelCard, wanted: AudioFormat, rate: int, speaker: Speaker, terms: Terms
) -> SpeechRequest:
    speed = float(body.speed or 1.0)
    native = card.parameters.speed.by == "native"
    honoured = {
        "speed": speed if native else None,
        "language": choose_language(body.language, card) if card.parameters.language else None,
        "instructions": body.instructions or None,
        "task_type": body.task_type or card.parameters.task_type,
        "max_new_tokens": body.max_new_tokens,
        "duration_seconds": body.duration_seconds,
        "initial_codec_chunk_frames": body.initial_codec_chunk_frames,
        "non_streaming_mode": body.non_streaming_mode,
        "test_fault": asker.fault,
        **(body.extra_params or {}),
        **speaker.params,
    }
    return SpeechRequest(
        voice=speaker.name,
        seed=body.seed if body.seed is not None else secrets.randbelow(INT64),
        response_format=wanted,
        sample_rate=rate,
        channels=card.channels,
        params={name: value for name, value in honoured.items() if value is not None},
        assets=speaker.assets,
        stretch=1.0 if native else speed,
        silence_ms=card.segments.silence_ms if body.segment_silence_ms is None else body.segment_silence_ms,
        keep_s=terms.ttl_s,
        replay=terms.detached and wanted not in LOSSLESS,
    )
