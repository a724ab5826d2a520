"""`session.config`: how everything that follows it on a WebSocket is to be spoken (speech_api §2.3)."""

from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict, StrictBool

from speechmill.api.errors import ApiError
from speechmill.api.realtime.splitter import Granularity
from speechmill.api.speech import validate
from speechmill.api.speech.call import SpeechCall
from speechmill.api.speech.orders import Order

_SAMPLE = "Hello."
"""Stands for the text that is not there yet when a config is checked."""


class Desk(Protocol):
    """Where one client's orders are made and spoken."""

    async def order(self, fields: dict[str, Any], open_text: bool = False) -> Order:
        """What is to be made of the fields of a speech request, whose text may be only the beginning.

        Raises ApiError.
        """

    def call(self, wanted: Order) -> SpeechCall:
        """A call that has not begun yet."""


class _Options(BaseModel):
    """What only a WebSocket has."""

    model_config = ConfigDict(extra="ignore")
    stream_audio: StrictBool | None = None
    split_granularity: Granularity | None = None
    incremental: StrictBool | None = None
    ack: StrictBool | None = None


_NOT_PASSED = _Options.model_fields.keys() | {"type", "input", "stream", "stream_format", "store"}


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """A config that the model can serve."""

    fields: dict[str, Any]
    """Of a speech request, without its text."""
    order: Order
    """What some text would become: model, voice, format and rate are those of every text."""
    streams: bool
    """Audio is sent while it is made; else each unit is one complete file."""
    granularity: Granularity
    incremental: bool
    """An utterance is begun before its text is complete."""
    ack: bool


async def read_config(message: dict[str, Any], desk: Desk) -> SessionConfig:
    """Raises ApiError for whatever is wrong with it, with the bounds of §1.1."""
    options = validate.parse(_Options, message)
    given = {name: value for name, value in message.items() if name not in _NOT_PASSED and value is not None}
    fields = {"response_format": "wav", **given}
    order = await desk.order({**fields, "input": _SAMPLE})
    streams = bool(options.stream_audio)
    if order.word_timestamps and not (streams and order.audio_format == "pcm"):
        text = "word_timestamps needs stream_audio and the response_format pcm"
        raise ApiError(400, "unsupported_parameter", text, "word_timestamps")
    granularity = options.split_granularity or "none"
    if options.incremental:
        _check_incremental(order, fields, streams, granularity)
    return SessionConfig(fields, order, streams, granularity, bool(options.incremental), bool(options.ack))


def _check_incremental(order: Order, fields: dict[str, Any], streams: bool, granularity: Granularity) -> None:
    if not order.card.parameters.incremental:
        raise validate.unsupported(order.card, "incremental")
    if fields.get("non_streaming_mode"):
        text = "incremental text runs beside the speech; non_streaming_mode has all of it before"
        raise ApiError(400, "unsupported_parameter", text, "non_streaming_mode")
    if not streams or granularity != "none":
        text = "incremental needs stream_audio, and the split_granularity none"
        raise ApiError(400, "unsupported_parameter", text, "incremental")
