"""Fetches what tasks need from the object store: recordings and voice features, beside claiming and computing.

The last ones used stay in memory, as far as they fit and for a while: a voice that is in demand is read once, and one
that was deleted is soon forgotten.
"""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from speechmill.infra.errors import StoreUnavailable
from speechmill.infra.objects import ObjectMissing, ObjectStore

log = logging.getLogger(__name__)
THREADS = 4
ROOM_BYTES = 64 << 20
RETRY_S = 0.5
IDLE_S = 600.0
"""What nobody has asked for so long is forgotten."""
TIDY_S = 60.0


@dataclass(frozen=True, slots=True)
class _Errand:
    keys: Mapping[str, str]
    wanted: Callable[[], bool]
    take: Callable[[Mapping[str, bytes] | None], None]


@dataclass(slots=True)
class _Known:
    content: bytes
    used: float
    """When it was last asked for, on the memory's clock."""


class Assets:
    """A few threads and a memory of at most `room_bytes`. Keys stand for their content, so nothing in it is wrong."""

    def __init__(
        self, objects: ObjectStore, room_bytes: int = ROOM_BYTES, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._objects = objects
        self._room_bytes = room_bytes
        self._clock = clock
        self._memory: OrderedDict[str, _Known] = OrderedDict()
        self._used_bytes = 0
        self._lock = threading.Lock()
        self._errands: SimpleQueue[_Errand | None] = SimpleQueue()
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._serve, name=f"assets-{n}", daemon=True) for n in range(THREADS)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """What is still being fetched is taken by nobody."""
        self._stopped.set()
        for _ in self._threads:
            self._errands.put(None)

    def bring(
        self, keys: Mapping[str, str], wanted: Callable[[], bool], take: Callable[[Mapping[str, bytes] | None], None]
    ) -> None:
        """Have the contents of `keys` (name → object) given to `take`: at once if they are at hand, else by a thread.

        While the store is away it is asked again as long as `wanted` says so. `take` gets None when an object is
        missing, or when nobody wants them any more.
        """
        found = {name: self._recall(key) for name, key in keys.items()}
        at_hand = {name: content for name, content in found.items() if content is not None}
        if len(at_hand) == len(keys):
            take(at_hand)
        else:
            self._errands.put(_Errand(keys, wanted, take))

    def _serve(self) -> None:
        while not self._stopped.is_set():
            with suppress(Empty):
                errand = self._errands.get(timeout=TIDY_S)
                if errand is not None:
                    self._run(errand)
            self.tidy()

    def _run(self, errand: _Errand) -> None:
        if not errand.wanted():
            errand.take(None)
            return
        try:
            brought = {name: self._content(key) for name, key in errand.keys.items()}
        except ObjectMissing:
            errand.take(None)
        except StoreUnavailable as error:
            log.warning("store away", extra={"error": type(error).__name__})
            self._stopped.wait(RETRY_S)
            self._errands.put(errand)  # behind the others: they may be in memory by now
        else:
            errand.take(brought)

    def _content(self, key: str) -> bytes:
        known = self._recall(key)
        if known is not None:
            return known
        content = b"".join(self._objects.get(key))
        self._remember(key, content)
        return content

    def _recall(self, key: str) -> bytes | None:
        with self._lock:
            known = self._memory.get(key)
            if known is None:
                return None
            self._memory.move_to_end(key)
            known.used = self._clock()
            return known.content

    def _remember(self, key: str, content: bytes) -> None:
        with self._lock:
            if key in self._memory or len(content) > self._room_bytes:
                return
            self._memory[key] = _Known(content, self._clock())
            self._used_bytes += len(content)
            while self._used_bytes > self._room_bytes:
                self._forget_oldest()

    def tidy(self) -> None:
        """Forget what has not been asked for lately; called by the threads themselves now and then."""
        with self._lock:
            while self._memory and self._clock() - next(iter(self._memory.values())).used >= IDLE_S:
                self._forget_oldest()

    def _forget_oldest(self) -> None:
        _, oldest = self._memory.popitem(last=False)
        self._used_bytes -= len(oldest.content)
