"""A worker in small: each of its hands holds one task and does one command at a time, as the real threads do.

What the toy stages make is known beforehand: code `i` of a text, two samples for each code, segments joined as they
are. A recording is a text, too, and its features are the text's codes. Codes stand in chunks that cannot be cut;
samples are cut anywhere.
"""

import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from speechmill.infra import protocol
from speechmill.infra.client import Client
from speechmill.infra.jobs import log_of
from speechmill.infra.keys import FILING_STAGES, LogRef, Task
from speechmill.infra.messages import Claim, LogChunk
from speechmill.infra.protocol import Append, Call, Hole, LogReader, Misaligned

SAMPLES, SAMPLE = 2, 2
"""Samples of a code; bytes of a sample."""
TTL_S = 600
Send = Callable[[Call[Any]], Any]


def codes(text: str) -> bytes:
    seed = zlib.crc32(text.encode())
    return bytes((seed + 7 * at) % 251 for at in range(len(text)))


def samples(spoken: bytes) -> bytes:
    return b"".join(bytes((code, part)) for code in spoken for part in range(SAMPLES))


def audio(texts: tuple[str, ...]) -> bytes:
    """All that is ever heard of a job."""
    return b"".join(samples(codes(text)) for text in texts)


def pack(spoken: bytes) -> bytes:
    """Codes as they stand in a log: only to be read whole."""
    return bytes((len(spoken),)) + spoken


def unpack(payload: bytes) -> bytes:
    assert payload[0] == len(payload) - 1
    return payload[1:]


@dataclass(slots=True)
class Made:
    """An emission that waits to be appended."""

    payload: bytes
    frames: int
    cursor: bytes = b""
    joined: int = -1
    """For finish: how many segments are in `out` with it."""


@dataclass(slots=True)
class Hand:
    """One claimed task. `step` answers False when the hand is empty again."""

    client: Client
    claimed: Claim
    send: Send
    begun: bool = False
    leaving: bool = False
    sealed: bool = False
    end: int = 0
    crc: int = 0
    segment: int = 0
    """For finish: which one is being read, and where in `out` it began."""
    began: int = 0
    joined: int = 0
    input: bytearray = field(default_factory=bytearray)
    """Codes or samples read so far; of the open segment for finish."""
    input_ended: bool = False
    reader: LogReader = field(default_factory=LogReader)
    made: Made | None = None

    @property
    def task(self) -> Task:
        return self.claimed.task

    @property
    def log(self) -> LogRef:
        return log_of(self.task, self.claimed.stages)

    def source(self) -> LogRef | None:
        job, take, stage = self.task.job, self.task.take, self.task.stage
        before = {
            "codec": Task(job, take, self.task.segment, "talker"),
            "finish": Task(job, take, self.segment, "codec"),
            "store": Task(job, take, None, "finish"),
            "keep": Task(job, take, 0, "encode"),
        }
        return log_of(before[stage], self.claimed.stages) if stage in before else None

    # -- one command --------------------------------------------------------------------------------------------------

    def step(self, size: int) -> bool:
        if self.leaving:
            self.send(protocol.handback(self.task, self.claimed.token))
            return False
        if not self.begun:
            self._begin()
        elif self.sealed:
            return self._commit("")
        elif self.made is not None or self._make(size):
            self._append()
        elif self._complete():
            return self._finish()
        else:
            self._read()
        return True

    def renewed(self, verdict: str, joined: int) -> None:
        if verdict in ("fenced", "closed"):
            self.leaving = True
        elif self.task.stage != "finish":
            self.joined = joined

    def _begin(self) -> None:
        self.begun, self.joined = True, self.claimed.heard.joined
        self._open_reader()
        if self.task.stage in FILING_STAGES:
            return
        token, base = self.claimed.token, self.claimed.base
        stands = self.send(protocol.fence(self.log, token, base, TTL_S, "{}"))
        if stands.state != "ok":
            self.leaving = True
            return
        self.end, self.crc, self.sealed = stands.end, stands.crc, bool(stands.trailer)
        if self.task.stage == "finish" and stands.cursor:
            self.segment, self.began = json.loads(stands.cursor)
        if self.task.stage == "finish" and self.segment > self.joined:
            self.made = Made(b"", 0, joined=self.segment)  # the predecessor did not get to tell

    def _open_reader(self) -> None:
        source = self.source()
        self.reader = LogReader(0, SAMPLE if source is not None and source.on == "chunks" else 0)
        self.input, self.input_ended = bytearray(), False

    def _read(self) -> None:
        source = self.source()
        assert source is not None
        try:
            chunks = self.reader.entries(self.client.read_log(source, self.reader.entry, 4))
        except Misaligned:
            self.leaving = True
            return
        except Hole:
            chunks = []
        for chunk in chunks:
            self._take(chunk)
        if not chunks and self.send(protocol.reopen(source.task, self.reader.position)) == "closed":
            self.leaving = True

    def _take(self, chunk: LogChunk) -> None:
        if chunk.payload:
            self.input += unpack(chunk.payload) if self.task.stage in ("codec", "keep") else chunk.payload
        self.input_ended = self.input_ended or chunk.trailer is not None

    # -- what the stages make -----------------------------------------------------------------------------------------

    def _make(self, size: int) -> bool:
        """Compute the next emission, if there is anything to compute it from."""
        if self.task.stage in ("talker", "encode"):
            spoken = codes(self.claimed.text)[self.end : self.end + size]
            self.made = Made(pack(spoken), len(spoken)) if spoken else None
        elif self.task.stage == "codec":
            ready = samples(bytes(self.input))[SAMPLE * self.end : SAMPLE * (self.end + size)]
            self.made = Made(ready, len(ready) // SAMPLE) if ready else None
        elif self.task.stage == "finish" and self.segment < self.claimed.segments:
            self.made = self._join(size)
        return self.made is not None

    def _join(self, size: int) -> Made | None:
        skip = max(self.end - self.began, 0) * SAMPLE
        fresh = bytes(self.input[skip : skip + SAMPLE * size])
        rest = len(self.input) - skip - len(fresh)
        if not (self.input_ended and rest <= 0):
            cursor = json.dumps([self.segment, self.began]).encode()
            return Made(fresh, len(fresh) // SAMPLE, cursor) if fresh else None
        at = (self.segment + 1, self.began + len(self.input) // SAMPLE)
        return Made(fresh, len(fresh) // SAMPLE, json.dumps(at).encode(), joined=at[0])

    def _complete(self) -> bool:
        """Whether the task has nothing more to read or to make."""
        if self.task.stage in ("talker", "encode"):
            return True
        if self.task.stage == "finish":
            return self.segment == self.claimed.segments
        return self.input_ended

    # -- how it gets into the log -------------------------------------------------------------------------------------

    def _append(self) -> None:
        made = self.made
        assert made is not None
        if made.frames:
            crc = zlib.crc32(made.payload, self.crc)
            urgent = self.task.segment is None or self.task.segment == self.joined
            append = Append(self.end, self.end + made.frames, crc, made.payload, (), made.cursor, urgent)
            answer = self.send(protocol.emit(self.log, self.claimed.token, append, TTL_S))
            if answer != "ok":
                self.leaving = answer != "full"
                return
            self.end, self.crc, made.frames = append.end, crc, 0
            if made.joined >= 0:
                return
        if made.joined >= 0:
            self._advance(made)
        self.made = None

    def _advance(self, made: Made) -> None:
        answer = self.send(protocol.advance(self.task, self.claimed.token, made.joined, self.end))
        if answer not in ("ok", "done"):
            self.leaving = True
            return
        spent = range(self.joined, made.joined)
        logs = [log_of(Task(self.task.job, self.task.take, k, "codec"), self.claimed.stages) for k in spent]
        if logs:
            self.send(protocol.retire(logs, 0, "chunks"))
        self.joined = made.joined
        if made.cursor:
            self.segment, self.began = json.loads(made.cursor)
            self._open_reader()

    def _finish(self) -> bool:
        if self.task.stage in FILING_STAGES:
            return self._commit(json.dumps({"crc": zlib.crc32(self.input), "bytes": len(self.input)}))
        self.sealed = self.send(protocol.seal(self.log, self.claimed.token, "{}", self.end)) == "ok"
        self.leaving = not self.sealed
        return True

    def _commit(self, result: str) -> bool:
        self.leaving = self.send(protocol.commit(self.task, self.claimed.token, result)) != "ok"
        return self.leaving
