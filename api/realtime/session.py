"""The protocol of one WebSocket: what each message of the client does (speech_api §2)."""

import asyncio
import time
from typing import Any, TypeVar

from speechmill.api.errors import ApiError, translate
from speechmill.api.http.body import parse_object
from speechmill.api.listen import ended
from speechmill.api.realtime.channel import Channel
from speechmill.api.realtime.growing import Growing
from speechmill.api.realtime.open_unit import OpenUnit
from speechmill.api.realtime.playout import Done, Playout
from speechmill.api.realtime.session_config import Desk, SessionConfig, read_config
from speechmill.api.realtime.splitter import Splitter
from speechmill.api.realtime.texts import Split, Texts
from speechmill.api.realtime.unit import FAILURES, Unit
from speechmill.infra.keys import new_id
from speechmill.infra.segments import clean

CONFIG_S = 10.0
"""The first config must come so soon."""
IDLE_S = 30.0
"""Between two messages of a client while nothing is spoken."""
CONFIG_CHARS = 4 << 20
MESSAGE_CHARS = 128 << 10
BACKLOG_CHARS = 1 << 20
"""Text that waits to be spoken."""
_TYPE_CHARS = 64
"""A type that nobody knows is quoted so far."""
NORMAL, POLICY = 1000, 1008
AnyUnit = TypeVar("AnyUnit", bound=Unit)


class Ending(Exception):
    """The session is over for a reason that the client is told."""

    def __init__(self, error: ApiError, code: int) -> None:
        super().__init__(error.message)
        self.error = error
        self.code = code


class Session:
    """One client that talks and listens at the same time. `run` it once."""

    def __init__(self, channel: Channel, desk: Desk) -> None:
        self._channel = channel
        self._desk = desk
        self._playout = Playout(channel.send)
        self._config: SessionConfig
        self._texts: Texts = Split(Splitter("none"), self._speak)
        self._utterance = 0
        self._sentences = 0

    async def run(self) -> int:
        """Until either side ends it; answers the code to close with. Raises Disconnected."""
        tasks = [asyncio.create_task(self._converse()), asyncio.create_task(self._playout.run())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return done.pop().result()
        finally:
            for task in tasks:
                await ended(task)
            await self._playout.close()

    async def _converse(self) -> int:
        try:
            await self._first_config()
            while await self._message() != "session.close":
                pass
        except Ending as ending:
            await self._tell(ending.error)
            return ending.code
        return NORMAL

    async def _tell(self, error: ApiError) -> None:
        told = {"type": "error", "message": error.message, "code": error.code, "param": error.param}
        await self._channel.send(told | error.extra)

    # -- what comes in ----------------------------------------------------------------------------------------------

    async def _first_config(self) -> None:
        try:
            async with asyncio.timeout(CONFIG_S):
                while isinstance(raw := await self._channel.receive(), bytes):
                    await self._tell(_binary())
        except TimeoutError:
            late = ApiError(408, "request_timeout", "Timeout waiting for session.config")
            raise Ending(late, POLICY) from None
        try:
            message = _parse(raw)
            if message["type"] != "session.config":
                raise ApiError(400, "invalid_value", f"Expected session.config, got: {message['type']}", "type")
            await self._configure(message)
        except FAILURES as error:
            raise Ending(translate(error), POLICY) from None

    async def _message(self) -> str:
        """Do what the next message asks for; answers its type."""
        raw = await self._receive()
        try:
            if isinstance(raw, bytes):
                raise _binary()
            message = _parse(raw)
            return await self._act(message)
        except FAILURES as error:
            await self._tell(translate(error))
            return "error"

    async def _receive(self) -> str | bytes:
        began, wait_s = time.monotonic(), IDLE_S
        while True:
            try:
                async with asyncio.timeout(wait_s):
                    return await self._channel.receive()
            except TimeoutError:
                idle_s = min(time.monotonic() - began, self._playout.quiet_s)
            if idle_s >= IDLE_S:
                idle = ApiError(408, "request_timeout", "Idle timeout: no message received")
                raise Ending(idle, NORMAL)
            wait_s = IDLE_S - idle_s

    # -- what it does -----------------------------------------------------------------------------------------------

    async def _act(self, message: dict[str, Any]) -> str:
        kind: str = message["type"]
        match kind:
            case "session.config":
                await self._configure(message)
            case "input.text":
                self._append(message.get("text"))
            case "input.done":
                self._flush()
            case "input.cancel":
                self._cancel()
            case "session.close":
                pass
            case _:
                raise ApiError(400, "invalid_value", f"Unknown message type: {kind}", "type")
        return kind

    @property
    def _open(self) -> bool:
        """Whether there is an utterance that has begun and not been flushed."""
        return self._sentences > 0 or self._texts.pending

    async def _configure(self, message: dict[str, Any]) -> None:
        if self._open:
            raise ApiError(409, "session_busy", "text is pending: send input.done before another session.config")
        self._config = config = await read_config(message, self._desk)
        self._texts = self._texts_for(config)
        if config.ack:
            wanted = config.order
            told = {"session_id": new_id("sess"), "model": wanted.card.id, "voice": wanted.voice}
            sound = {"format": wanted.audio_format, "sample_rate": wanted.request.sample_rate}
            channels = wanted.request.channels
            await self._channel.send({"type": "session.configured", **told, **sound, "channels": channels})

    def _append(self, text: Any) -> None:
        if not isinstance(text, str):
            raise ApiError(400, "invalid_type", "text must be a string", "text")
        self._check_backlog(len(text))
        self._texts.feed(clean(text))

    def _flush(self) -> None:
        self._check_backlog(0)
        self._texts.flush()
        self._end_utterance()

    def _cancel(self) -> None:
        was_open = self._open
        self._texts.forget()
        if was_open:
            self._end_utterance()
        self._playout.cancel()

    def _texts_for(self, config: SessionConfig) -> Texts:
        if config.incremental:
            return Growing(config.order, self._begin_unit)
        return Split(Splitter(config.granularity), self._speak)

    def _speak(self, text: str) -> None:
        self._add(Unit(self._desk, self._config, self._utterance, self._sentences, text))

    def _begin_unit(self) -> OpenUnit:
        return self._add(OpenUnit(self._desk, self._config, self._utterance, self._sentences))

    def _add(self, unit: AnyUnit) -> AnyUnit:
        self._playout.add(unit)
        self._sentences += 1
        return unit

    def _end_utterance(self) -> None:
        self._playout.add(Done(self._utterance, self._sentences))
        self._utterance, self._sentences = self._utterance + 1, 0

    def _check_backlog(self, chars: int) -> None:
        if self._playout.backlog + self._texts.chars + chars > BACKLOG_CHARS:
            message = f"more than {BACKLOG_CHARS} characters wait to be spoken; this message is left out"
            raise ApiError(400, "input_too_long", message)


def _binary() -> ApiError:
    return ApiError(400, "invalid_message", "messages are text frames with a JSON object")


def _parse(raw: str | bytes) -> dict[str, Any]:
    """A message with a `type` that is a short text. Raises ApiError."""
    if len(raw) > CONFIG_CHARS:
        raise ApiError(413, "request_too_large", f"a message has at most {CONFIG_CHARS} characters")
    message = parse_object(raw.encode() if isinstance(raw, str) else raw)
    kind = message["type"] = clean(str(message.get("type")))[:_TYPE_CHARS]
    if len(raw) > MESSAGE_CHARS and kind != "session.config":
        raise ApiError(413, "request_too_large", f"a message of this type has at most {MESSAGE_CHARS} characters")
    return message
