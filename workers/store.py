"""The farm's stage that turns a job's `out` log into one object in S3. It starts from 0 after a crash.

The key holds the claim's token, so two claims never write the same object; the commit decides which one counts, and
the retention sweep takes the others. Encoding runs in the step, the upload on a thread of its own.
"""

import logging
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, BinaryIO, TypeVar, cast

from speechmill.infra.client import UNAVAILABLE
from speechmill.infra.encode import EXTENSIONS, MEDIA_TYPES, AudioFormat, FileWriter, file_writer
from speechmill.infra.errors import StoreUnavailable
from speechmill.infra.keys import out_log
from speechmill.infra.messages import WordMark
from speechmill.infra.objects import ObjectStore, Stored
from speechmill.infra.spill import MARKS, Spill
from speechmill.models.stage import Chunk, Emission, Mark, Resume, StageTask
from speechmill.workers.finish import FarmTask

log = logging.getLogger(__name__)
T = TypeVar("T")
SPOOL_BYTES = 8 << 20
"""Files up to this size stay in memory until they are uploaded."""
RETRY_S = 1.0


@dataclass(slots=True)
class _Filing:
    """One job's file in the making."""

    task: FarmTask
    file: BinaryIO
    writer: FileWriter
    samples: BinaryIO | None
    """What went into the file, where that is lossy and the samples are to be heard again."""
    frames: int = 0
    marks: list[Mark] = field(default_factory=list)
    inbox: list[Chunk] = field(default_factory=list)
    upload: Future[dict[str, Any]] | None = None
    closed: threading.Event = field(default_factory=threading.Event)

    def discard(self) -> None:
        self.file.close()
        if self.samples is not None:
            self.samples.close()


class Store:
    """A stepper like any model's; its only emission is the result record."""

    def __init__(
        self, objects: ObjectStore, register: Callable[[str, float], None], uploads: Executor, wake: Callable[[], None]
    ) -> None:
        """`register(key, due)` notes when an object may go (Unix seconds); `wake` tells of a finished upload."""
        self._objects = objects
        self._spill = Spill(objects)
        self._register = register
        self._uploads = uploads
        self._wake = wake
        self._filings: dict[int, _Filing] = {}

    def warm(self) -> None:
        """Nothing to warm."""

    def open(self, slot: int, task: StageTask, resume: Resume) -> None:
        assert isinstance(task, FarmTask)
        request = task.request
        file, samples = _spool(), _spool() if request.replay else None
        writer = file_writer(cast(AudioFormat, request.response_format), request.sample_rate, request.channels, file)
        self._filings[slot] = _Filing(task, file, writer, samples)

    def feed(self, slot: int, chunk: Chunk) -> None:
        self._filings[slot].inbox.append(chunk)

    def runnable(self, slot: int) -> bool:
        filing = self._filings[slot]
        return bool(filing.inbox) or (filing.upload is not None and filing.upload.done())

    def step(self, slots: Sequence[int]) -> list[Emission]:
        emissions: list[Emission] = []
        for slot in slots:
            filing = self._filings[slot]
            chunks, filing.inbox = filing.inbox, []
            for chunk in chunks:
                self._take(filing, chunk)
            if filing.upload is not None and filing.upload.done():
                emissions.append(Emission(slot, final=True, trailer=filing.upload.result()))
        return emissions

    def close(self, slot: int) -> None:
        filing = self._filings.pop(slot, None)
        if filing is None:
            return
        filing.closed.set()
        if filing.upload is None:
            filing.discard()
        else:
            filing.upload.cancel()
            filing.upload.add_done_callback(lambda _: filing.discard())

    def _take(self, filing: _Filing, chunk: Chunk) -> None:
        if chunk.payload:
            filing.writer.write(chunk.payload)
            if filing.samples is not None:
                filing.samples.write(chunk.payload)
            filing.frames += chunk.end - chunk.start
        filing.marks += chunk.marks
        if chunk.final:
            filing.writer.finish()
            filing.upload = self._uploads.submit(self._upload, filing)
            filing.upload.add_done_callback(lambda _: self._wake())

    def _upload(self, filing: _Filing) -> dict[str, Any]:
        """Answers the job's result record."""
        request = filing.task.request
        audio_format = cast(AudioFormat, request.response_format)
        key = object_key(filing.task, EXTENSIONS[audio_format])

        def put() -> Stored:
            self._register(key, time.time() + request.keep_s)
            filing.file.seek(0)
            return self._objects.put_once(key, filing.file, MEDIA_TYPES[audio_format])

        if filing.samples is not None:
            insist(partial(self._keep_samples, filing, filing.samples), filing.closed)
        stored = insist(put, filing.closed)
        return {
            "key": key,
            "format": audio_format,
            "media_type": MEDIA_TYPES[audio_format],
            "bytes": stored.size_bytes,
            "sha256": stored.sha256,
            "sample_rate": request.sample_rate,
            "channels": request.channels,
            "frames": filing.frames,
            "duration_ms": round(filing.frames * 1000 / request.sample_rate),
            "seed": request.seed,
            "word_timestamps": [_times(mark, request.sample_rate) for mark in filing.marks] or None,
        }


    def _keep_samples(self, filing: _Filing, samples: BinaryIO) -> None:
        """All that was heard, as one piece of what left the log."""
        source = out_log(filing.task.job, filing.task.take)
        key = self._spill.key(source, 0, filing.frames)
        for made in (key, key + MARKS):
            self._register(made, time.time() + filing.task.request.keep_s)
        samples.seek(0)
        marks = tuple(WordMark(mark.word, mark.start, mark.end) for mark in filing.marks)
        self._spill.write(source, 0, filing.frames, samples, marks)


def _spool() -> BinaryIO:
    return cast(BinaryIO, tempfile.SpooledTemporaryFile(SPOOL_BYTES))


def insist(put: Callable[[], T], closed: threading.Event) -> T:
    """Try again while a server is away, until the slot is closed; what went wrong last is raised then."""
    while True:
        try:
            return put()
        except (StoreUnavailable, *UNAVAILABLE) as error:
            log.warning("store away", extra={"error": str(error)})
            if closed.wait(RETRY_S):
                raise


def object_key(task: FarmTask, extension: str) -> str:
    """`audio/2026/11/30/<job>/<take>-<claim>.wav`"""
    day = datetime.now(UTC).strftime("%Y/%m/%d")
    return f"audio/{day}/{task.job}/{task.take}-{task.token.replace(':', '-')}.{extension}"


def _times(mark: Mark, rate: int) -> dict[str, Any]:
    return {"word": mark.word, "start_ms": round(mark.start * 1000 / rate), "end_ms": round(mark.end * 1000 / rate)}
