"""Fetches what tasks need from the object store: recordings and voice features, beside claiming and computing.

The last ones used stay in memory, as far as they fit: a voice that is in demand is read once.
"""

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from queue import SimpleQueue

from speechmill.infra.errors import StoreUnavailable
from speechmill.infra.objects import ObjectMissing, ObjectStore

log = logging.getLogger(__name__)
THREADS = 4
ROOM_BYTES = 64 << 20
RETRY_S = 0.5


@dataclass(frozen=True, slots=True)
class _Errand:
    keys: Mapping[str, str]
    wanted: Callable[[], bool]
    take: Callable[[Mapping[str, bytes] | None], None]


class Assets:
    """A few threads and a memory of at most `room_bytes`. Keys stand for their content, so nothing in it grows old."""

    def __init__(self, objects: ObjectStore, room_bytes: int = ROOM_BYTES) -> None:
        self._objects = objects
        self._room_bytes = room_bytes
        self._memory: OrderedDict[str, bytes] = OrderedDict()
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
        while (errand := self._errands.get()) is not None:
            if not errand.wanted():
                errand.take(None)
                continue
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
            if key in self._memory:
                self._memory.move_to_end(key)
            return self._memory.get(key)

    def _remember(self, key: str, content: bytes) -> None:
        with self._lock:
            if key in self._memory or len(content) > self._room_bytes:
                return
            self._memory[key] = content
            self._used_bytes += len(content)
            while self._used_bytes > self._room_bytes:
                _, oldest = self._memory.popitem(last=False)
                self._used_bytes -= len(oldest)
