"""Results on their way from the farm to where they are kept: several at a time, each checked and whole."""

import contextlib
import hashlib
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any
from urllib.parse import quote

from speechmill.cli.remote import Refused, Remote
from speechmill.cli.submit.outputs import Output, part_file
from speechmill.cli.submit.patience import Patience, Stopped
from speechmill.cli.submit.rows import Ended
from speechmill.infra.errors import FarmError

AT_ONCE = 8
TRIES = 3
"""For bytes that are not those which the farm has stored."""
_GONE = (404, 410)
_FORBIDDEN = (401, 403)


@dataclass(frozen=True, slots=True)
class Gone:
    """The farm has an item's audio no more."""

    name: str


@dataclass(frozen=True, slots=True)
class Broken:
    """Nothing more can be fetched: the disk is full, the bucket refuses, or the key is no good any more."""

    error: Exception


Outcome = Ended | Gone | Broken


def _refused(name: str, job: str | None, error: Refused) -> Outcome:
    if error.status in _FORBIDDEN:
        return Broken(error)
    return Gone(name) if error.status in _GONE else Ended(name, "failed", job, error=str(error))


class _Damaged(FarmError):
    """What came is not what was stored."""


def job_audio(job: str) -> str:
    """Where the audio of a job is."""
    return f"/v1/audio/jobs/{quote(job, safe='')}/audio?redirect=false"


class Fetcher:
    """Threads that fetch; one other thread asks, and takes what became of each item. A context manager."""

    def __init__(self, farm: Remote, output: Output, patience: Patience) -> None:
        self._outcomes: SimpleQueue[Outcome] = SimpleQueue()
        self.under_way = 0
        """Asked for, and not taken yet."""
        self._farm, self._output, self._patience = farm, output, patience
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="fetch")

    def take(self, wait_s: float) -> list["Outcome"]:
        """All outcomes that there are; none after `wait_s` seconds without any."""
        found: list[Outcome] = []
        with contextlib.suppress(Empty):
            while True:
                found.append(self._outcomes.get(block=not found and wait_s > 0, timeout=wait_s))
                self.under_way -= 1
        return found

    def __enter__(self) -> "Fetcher":
        return self

    def __exit__(self, *_: object) -> None:
        self._patience.stop.set()
        self._threads.shutdown(wait=True, cancel_futures=True)

    def fetch(self, name: str, path: str, line: Mapping[str, Any]) -> None:
        """`line` is an item's line of the results, `path` where its audio is on the farm."""
        self.under_way += 1
        self._threads.submit(self._run, name, path, line)

    def _run(self, name: str, path: str, line: Mapping[str, Any]) -> None:
        job = line.get("job_id")
        try:
            self._outcomes.put(self._fetched(name, path, job, line["response"]["body"]))
        except Stopped:
            pass
        except Refused as error:
            self._outcomes.put(_refused(name, job, error))
        except _Damaged as error:
            self._outcomes.put(Ended(name, "failed", job, error=str(error)))
        except Exception as error:  # whatever it is, who waits for the outcome has to hear of it
            self._outcomes.put(Broken(error))

    def _fetched(self, name: str, path: str, job: str | None, result: Mapping[str, Any]) -> Ended:
        size, sha256 = int(result["bytes"]), str(result["sha256"])
        for left in range(TRIES - 1, -1, -1):
            try:
                stamp = self._patience.until_done(lambda: self._keep(name, path, size, sha256, result["media_type"]))
                break
            except _Damaged:
                if not left:
                    raise
        return Ended(
            name,
            "succeeded",
            job,
            duration_ms=int(result["duration_ms"]),
            sha256=sha256,
            bytes=size,
            seed=result["seed"],
            finish_reason=result["finish_reason"],
            stamp=stamp,
        )

    def _keep(self, name: str, path: str, size: int, sha256: str, media_type: str) -> int:
        digest, got = hashlib.sha256(), 0
        with part_file(self._output) as (file, part):
            with self._farm.streamed(path) as answer:
                for piece in answer.iter_bytes():
                    if self._patience.stop.is_set():
                        raise Stopped
                    digest.update(piece)
                    got += len(piece)
                    file.write(piece)
            if (got, digest.hexdigest()) != (size, sha256):
                raise _Damaged(f"{path}: the audio that came is not what the farm has stored")
            file.flush()
            os.fsync(file.fileno())
            return self._output.keep(name, part, sha256, media_type)
