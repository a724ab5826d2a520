"""Units of one WebSocket, spoken strictly in order; while one is sent the next is already made (speech_api §2.2)."""

import asyncio
import logging
import time
from collections import deque
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from speechmill.api.realtime.unit import Send, Unit

log = logging.getLogger(__name__)
_ITEM_CHARS = 64
"""What a waiting item costs besides its text."""


@dataclass(frozen=True, slots=True)
class Done:
    """The end of an utterance, after its last unit."""

    utterance: int
    sentences: int
    cancelled: bool = False

    def message(self) -> dict[str, Any]:
        told = {"type": "session.done", "utterance_index": self.utterance, "total_sentences": self.sentences}
        return told | ({"cancelled": True} if self.cancelled else {})


class Playout:
    """What is added is sent in that order. Nothing here waits for the client but the playout itself."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._waiting: deque[Unit | Done] = deque()
        self._news = asyncio.Event()
        self._speaking: Unit | None = None
        self._latest: Unit | None = None
        """The last one whose turn has come."""
        self._sounding = False
        self._closing: set[asyncio.Task[None]] = set()
        self._quiet_since = time.monotonic()
        self.backlog = 0
        """Characters of what waits for its turn; each item counts as some."""

    @property
    def quiet_s(self) -> float:
        """Since when there has been nothing to speak, or only what waits for its text; 0 while there is."""
        if self._speaking is not None:
            return self._speaking.idle_s
        return 0.0 if self._waiting else time.monotonic() - self._quiet_since

    def add(self, item: Unit | Done) -> None:
        self._waiting.append(item)
        self.backlog += _cost(item)
        self._look_ahead()
        self._news.set()

    def cancel(self) -> None:
        """Drop all audio and text; utterances that wait for their end get it at once, as cancelled ones."""
        dones = [item for item in self._waiting if isinstance(item, Done)]
        for item in self._waiting:
            if isinstance(item, Unit):
                self._let_go(item)
        self._waiting.clear()
        self.backlog = 0
        for done in dones:
            self.add(replace(done, sentences=self._begun(done.utterance), cancelled=True))
        if self._speaking is not None:
            self._speaking.leave()

    def _begun(self, utterance: int) -> int:
        latest = self._latest
        return latest.sentence + 1 if latest is not None and latest.utterance == utterance else 0

    async def run(self) -> NoReturn:
        """Speak what there is, and wait for more. Raises Disconnected."""
        while True:
            while not self._waiting:
                self._news.clear()
                await self._news.wait()
            item = self._waiting.popleft()
            self.backlog -= _cost(item)
            if isinstance(item, Unit):
                await self._speak(item)
            else:
                await self._send(item.message())
            self._quiet_since = time.monotonic()

    async def _speak(self, unit: Unit) -> None:
        self._speaking = self._latest = unit
        try:
            await unit.speak(self._send, self._sounds)
        finally:
            self._speaking, self._sounding = None, False
            self._let_go(unit)

    def _sounds(self) -> None:
        self._sounding = True
        self._look_ahead()

    def _look_ahead(self) -> None:
        """Not before the unit whose turn it is has begun to sound: nothing may delay that."""
        coming = next((item for item in self._waiting if isinstance(item, Unit)), None)
        if self._sounding and coming is not None:
            coming.begin()

    def _let_go(self, unit: Unit) -> None:
        unit.leave()
        task = asyncio.create_task(unit.close())
        self._closing.add(task)
        task.add_done_callback(self._closed)

    def _closed(self, task: asyncio.Task[None]) -> None:
        self._closing.discard(task)
        if not task.cancelled() and (failure := task.exception()):
            log.warning("not closed", extra={"error": type(failure).__name__})

    async def close(self) -> None:
        """Let go of everything, once `run` has been ended."""
        self.cancel()
        if self._closing:
            await asyncio.wait(self._closing)


def _cost(item: Unit | Done) -> int:
    return _ITEM_CHARS + (item.most_chars if isinstance(item, Unit) else 0)
