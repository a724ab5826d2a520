"""The farm's stage that turns an `encode` log into one object: a recording's features, made once for all who use it.

It stands where `store` stands in other jobs, and like it starts from 0 after a crash. The key names the recording, not
the claim: whoever files it first has made it.
"""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import Any

from speechmill.infra.errors import ObjectExists
from speechmill.infra.objects import ObjectStore, Stored
from speechmill.models.stage import Chunk, Emission, Resume, SlotFailed, StageTask
from speechmill.workers.store import insist

MEDIA_TYPE = "application/octet-stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepTask(StageTask):
    """What is to be kept, and where."""

    key: str
    keep_s: int


@dataclass(slots=True)
class _Keeping:
    task: KeepTask
    features: bytearray = field(default_factory=bytearray)
    ended: bool = False
    upload: Future[dict[str, Any]] | None = None
    closed: threading.Event = field(default_factory=threading.Event)


class Keep:
    """A stepper like any model's; its only emission is the result record."""

    def __init__(
        self, objects: ObjectStore, register: Callable[[str, float], None], uploads: Executor, wake: Callable[[], None]
    ) -> None:
        """`register(key, due)` notes when an object may go (Unix seconds); `wake` tells of a finished upload."""
        self._objects = objects
        self._register = register
        self._uploads = uploads
        self._wake = wake
        self._keepings: dict[int, _Keeping] = {}

    def warm(self) -> None:
        """Nothing to warm."""

    def open(self, slot: int, task: StageTask, resume: Resume) -> None:
        assert isinstance(task, KeepTask)
        self._keepings[slot] = _Keeping(task)

    def feed(self, slot: int, chunk: Chunk) -> None:
        keeping = self._keepings[slot]
        keeping.features += chunk.payload
        keeping.ended = keeping.ended or chunk.final

    def runnable(self, slot: int) -> bool:
        keeping = self._keepings[slot]
        return keeping.ended if keeping.upload is None else keeping.upload.done()

    def step(self, slots: Sequence[int]) -> list[Emission]:
        emissions: list[Emission] = []
        for slot in slots:
            keeping = self._keepings[slot]
            if keeping.upload is not None:
                emissions.append(Emission(slot, final=True, trailer=keeping.upload.result()))
            elif keeping.features:
                keeping.upload = self._uploads.submit(self._upload, keeping)
                keeping.upload.add_done_callback(lambda _: self._wake())
            else:
                raise SlotFailed(slot, "the model found nothing in this recording")
        return emissions

    def close(self, slot: int) -> None:
        keeping = self._keepings.pop(slot, None)
        if keeping is not None:
            keeping.closed.set()

    def _upload(self, keeping: _Keeping) -> dict[str, Any]:
        """Answers the job's result record."""
        task = keeping.task

        def put() -> Stored:
            self._register(task.key, time.time() + task.keep_s)
            try:
                return self._objects.put_once(task.key, bytes(keeping.features), MEDIA_TYPE)
            except ObjectExists:  # another device's last bits may differ; what is there is in use already
                return self._objects.look_up(task.key)

        stored = insist(put, keeping.closed)
        return {"key": stored.key, "bytes": stored.size_bytes, "sha256": stored.sha256}
