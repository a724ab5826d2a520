"""A unit that is spoken while its text is still being written."""

import asyncio
import time

from speechmill.api.errors import translate
from speechmill.api.listen import ended
from speechmill.api.realtime.session_config import Desk, SessionConfig
from speechmill.api.realtime.unit import FAILURES, Send, Unit
from speechmill.api.speech.call import SpeechCall
from speechmill.infra.messages import LogChunk


class OpenUnit(Unit):
    """What there is of the text begins the job; what is appended goes after it, until the text is complete."""

    def __init__(self, desk: Desk, config: SessionConfig, utterance: int, sentence: int) -> None:
        super().__init__(desk, config, utterance, sentence, "")
        self.most_chars = config.order.card.segments.max_chars
        self._news = asyncio.Event()
        self._complete = False
        self._moved = time.monotonic()
        self._passing: asyncio.Task[None] | None = None

    @property
    def idle_s(self) -> float:
        """Since when it has had no text and made no sound, while it waits for more text."""
        return 0.0 if self._complete else time.monotonic() - self._moved

    def append(self, text: str) -> None:
        self.text += text
        self._moved = time.monotonic()
        self._news.set()

    def complete(self) -> None:
        self._complete = True
        self._news.set()

    async def _prepare(self) -> LogChunk:
        beginning = self.text
        call = await self._call_for(beginning, open_text=True)
        await call.begin(beginning)
        self._passing = asyncio.create_task(self._pass_on(call, len(beginning)))
        return await call.first()

    async def _pass_on(self, call: SpeechCall, passed: int) -> None:
        try:
            while not self._complete or passed < len(self.text):
                self._news.clear()
                if passed == len(self.text):
                    await self._news.wait()
                    continue
                more = self.text[passed:]
                await call.extend(more)
                passed += len(more)
            await call.complete(self.text)
        except FAILURES as failure:
            self.fail(translate(failure))

    async def _send_audio(self, send: Send, data: bytes, frames: int) -> None:
        await super()._send_audio(send, data, frames)
        self._moved = time.monotonic()

    async def close(self) -> None:
        await super().close()
        if self._passing is not None and self._complete:
            await asyncio.wait({self._passing})  # what it still says of the job is soon said
        elif self._passing is not None:
            await ended(self._passing)
