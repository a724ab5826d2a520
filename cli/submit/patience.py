"""Waiting for a farm that is away or busy: jobs are durable, so whoever asks for them has time."""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TypeVar

from speechmill.cli.remote import Refused, Unreachable

T = TypeVar("T")
PASSING = frozenset({408, 429, 500, 502, 503, 504})
"""The same request may be answered otherwise a moment later."""
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 5.0
MOST_FAULTS = 8
"""Times in a row that one request may meet a fault of the server, which is not there by chance then."""


class Stopped(Exception):
    """The user wants to leave."""


class Patience:
    """Shared by all threads of one call; `say` takes messages for the user."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.stop = threading.Event()
        self._say = say
        self._lock = threading.Lock()
        self._is_waiting = False

    def until_done(self, request: Callable[[], T]) -> T:
        """Its answer, however long the farm is away. Raises what no waiting mends, and Stopped."""
        pause_s, faults = FIRST_PAUSE_S, 0
        while True:
            if self.stop.is_set():
                raise Stopped
            try:
                answer = request()
            except Unreachable as error:
                self._wait(pause_s, str(error))
            except Refused as error:
                faults += error.status == 500
                if not _is_passing(error) or faults == MOST_FAULTS:
                    raise
                self._wait(max(pause_s, float(min(error.retry_after_s or 0, 60))), str(error))
            else:
                self._goes_on()
                return answer
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _wait(self, pause_s: float, why: str) -> None:
        with self._lock:
            is_news, self._is_waiting = not self._is_waiting, True
        if is_news:
            self._say(f"waiting for the farm: {why}")
        if self.stop.wait(pause_s):
            raise Stopped

    def _goes_on(self) -> None:
        with self._lock:
            was_waiting, self._is_waiting = self._is_waiting, False
        if was_waiting:
            self._say(f"the farm answers again ({time.strftime('%H:%M:%S')})")


def _is_passing(error: Refused) -> bool:
    return error.status in PASSING or error.code == "idempotency_key_in_progress"


@contextlib.contextmanager
def leaving(patience: Patience) -> Iterator[None]:
    """Ctrl-C lets what is being written down be finished; a second one ends at once."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        patience.stop.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
