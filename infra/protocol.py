"""The functions of the stage log protocol as values: what to call, on which server, how to read the answer.

Sync and asyncio callers run the same `Call`; see `client.py`. Every call may be sent twice without harm.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, TypeVar

from speechmill.configs.settings import JobClass
from speechmill.infra.keys import LogRef, Role, Task
from speechmill.infra.messages import (
    PAYLOAD_VERSION,
    Claim,
    Heard,
    JobDetails,
    LogChunk,
    SpeechRequest,
    Submission,
    WordMark,
    decode_marks,
    encode_marks,
)

T = TypeVar("T")
Argument = bytes | str | int


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One server-side function with its arguments."""

    function: str
    args: tuple[Argument, ...]
    parse: Callable[[Any], T]
    on: Role = "control"


@dataclass(frozen=True, slots=True)
class Limits:
    """What `submit` refuses beyond."""

    queue_depth: int = 1000
    project_jobs: int = 0
    """Jobs of one project that have not ended; 0 for no limit."""
    idempotency_s: int = 86_400
    """How long an idempotency key stands for its job; 0 for as long as the job is in work."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """`ok`, `exists` (same idempotency key), `full` or `quota`; of a group's lines also `ahead` of its window, or
    `closed`. `job` is set for the first two.
    """

    answer: str
    job: str
    depth: int = 0


@dataclass(frozen=True, slots=True)
class Fenced:
    """The answer to `fence`; `state` is ok, fenced or closed, and the rest holds for ok only."""

    state: str
    end: int = 0
    crc: int = 0
    cursor: bytes = b""
    trailer: bytes = b""


@dataclass(frozen=True, slots=True)
class Followed:
    """A log's state when a reader registered."""

    first: int
    end: int
    trailer: bytes
    header: bytes


@dataclass(frozen=True, slots=True)
class Append:
    """One emission. `crc` is the CRC-32 of the whole log up to `end`, as zlib.crc32 carries it on."""

    start: int
    end: int
    crc: int
    payload: bytes
    marks: tuple[WordMark, ...] = ()
    cursor: bytes = b""
    urgent: bool = False
    """`finish` waits for this segment: appended even when memory is short."""
    known_to: str = ""
    """An inbox that has the chunk already and needs no hint."""


def _text(raw: bytes) -> str:
    return raw.decode()


def submit(job: Submission, limits: Limits) -> Call[Submitted]:
    """The job's record, first task, idempotency key and quota, all or nothing."""

    def parse(raw: list[Any]) -> Submitted:
        answer = _text(raw[0])
        if answer in ("ok", "exists"):
            return Submitted(answer, _text(raw[1]))
        return Submitted(answer, "", int(raw[1]))

    args = (job.job, job.idempotency_key, limits.idempotency_s, limits.queue_depth, limits.project_jobs, job.record())
    return Call("submit", (*args, *job.segments), parse)


def dispatch(model: str, job_class: str, first_stage: str) -> Call[str]:
    """Fill the first stage's ready queue from the projects' backlogs."""
    return Call("dispatch", (model, job_class, first_stage), _text)


def _parse_claim(raw: list[Any]) -> Claim | str:
    if raw[0] != b"task":
        return _text(raw[0])
    task, token, text, attempts, solo, base, model, stages = raw[1:9]
    segments, request, live, retention, left, job_class, age, *heard = raw[9:]
    return Claim(
        task=Task.parse(_text(task)),
        token=_text(token),
        text=_text(text),
        attempts=int(attempts),
        solo=solo == b"1",
        base=int(base),
        model=_text(model),
        stages=tuple(json.loads(stages)),
        segments=int(segments),
        request=SpeechRequest.from_json(request),
        live=live == b"1",
        ttl_s=max(int(float(left)) // 1000, 0) + int(retention) + 1,
        job_class=_text(job_class),
        age_s=float(age) / 1000,
        heard=Heard.parse(*heard),
    )


def claim(
    pool: str,
    worker: str,
    nonce: str,
    lease_ms: int,
    open_slots: int,
    only: JobClass | Literal["ongoing", "unheard"] | None = None,
) -> Call[Claim | str]:
    """A task of the pool, what is ongoing first, then of any class or of one; `ongoing` is none, and `unheard` is any
    but without those who wait for a beginning.

    Or `none`; or `alone`: a suspect waits until the batch is empty.
    """
    wanted = () if only is None else (only,)
    return Call("claim", (pool, worker, nonce, lease_ms, PAYLOAD_VERSION, open_slots, *wanted), _parse_claim)


@dataclass(frozen=True, slots=True)
class Renewed:
    """`verdict` is ok, fenced, closed or done."""

    verdict: str
    heard: Heard


def renew(lease_ms: int, held: Sequence[tuple[Task, str, int]]) -> Call[list[Renewed]]:
    """Extend the leases of (task, token, own log's end)."""
    args = tuple(value for task, token, end in held for value in (str(task), token, end))

    def parse(raw: list[Any]) -> list[Renewed]:
        return [Renewed(_text(raw[i]), Heard.parse(*raw[i + 1 : i + 5])) for i in range(0, len(raw), 5)]

    return Call("renew", (lease_ms, *args), parse)


def handback(task: Task, token: str, problem: str = "", parked: bool = False) -> Call[str]:
    """Let go of a task. With a problem an attempt counts, and the next try runs alone. One that is parked waits for
    input, and lets those pass that have some.
    """
    return Call("handback", (str(task), token, problem, int(parked)), _text)


def commit(task: Task, token: str, result: str = "") -> Call[str]:
    """The task is done; its log is sealed already. `result` comes from `store` or `keep` and ends the job."""
    return Call("commit", (str(task), token, result), _text)


def advance(task: Task, token: str, joined: int, samples: int) -> Call[str]:
    """`finish` has joined so many segments: the next may start."""
    return Call("advance", (str(task), token, joined, samples), _text)


def reopen(task: Task, position: int) -> Call[str]:
    """A reader misses what the task wrote from `position` on: reopened, running or closed."""
    return Call("reopen", (str(task), position), _text)


def reap(limit: int = 100) -> Call[list[str]]:
    """Expired leases are ready again, late jobs end. Answers the jobs that ended by it."""
    return Call("reap", (limit,), lambda raw: [_text(job) for job in raw])


def end_job(job: str, state: str, problem: str = "") -> Call[str]:
    """failed, cancelled or expired. Answers the state the job is in now."""
    return Call("end_job", (job, state, problem), _text)


def retry(job: str, request: SpeechRequest | None = None) -> Call[str]:
    """A new take of a job that failed, was cancelled or expired: ok, unknown, or the state that forbids it, which may
    be `incomplete`: not all of its text ever came.

    `request` replaces the job's own.
    """
    return Call("retry", (job, request.to_json() if request else ""), _text)


def complete_text(job: str, text: str, details: JobDetails, asked: str) -> Call[str]:
    """All of an open text is there, and what the job is in full: ok or unknown."""
    return Call("complete_text", (job, text, details.to_json(), asked), _text)


def beat(worker: str, report: str, lapse_ms: int, pools: Sequence[tuple[str, int]]) -> Call[str]:
    """The worker is alive and serves (pool, slots)."""
    return Call("beat", (worker, report, lapse_ms, *(value for pool in pools for value in pool)), _text)


def leave(worker: str, pools: Sequence[str]) -> Call[str]:
    """The worker goes."""
    return Call("leave", (worker, *pools), _text)


def fence(log: LogRef, token: str, base: int, ttl_s: int, header: str) -> Call[Fenced]:
    """Install the token; make the log if there is none. No append before it.

    A log that was lost is made again from `base`, the position that a reader asked for; codes only make sense to a
    stage that has all of them, and begin at 0 again.
    """
    base = base if log.on == "chunks" else min(base, 0)

    def parse(raw: list[Any]) -> Fenced:
        return Fenced(_text(raw[0]), *raw[1:]) if len(raw) > 1 else Fenced(_text(raw[0]))

    return Call("fence", (log.name, token, base, ttl_s, header), parse, log.on)


def emit(log: LogRef, token: str, append: Append, ttl_s: int) -> Call[str]:
    """Append: ok, fenced, closed, full (memory) or lost (not the log that the writer knew: claim anew)."""
    a = append
    marks = encode_marks(a.marks)
    args = (log.name, token, a.start, a.end, a.crc, int(a.urgent), ttl_s, a.cursor, marks, a.payload, a.known_to)
    return Call("emit", args, _text, log.on)


def seal(log: LogRef, token: str, trailer: str, end: int = -1, ttl_s: int = 0) -> Call[str]:
    """Nothing follows: ok, fenced, closed, or lost: the log is gone or does not end at `end` (-1: anywhere).

    It stays for at least `ttl_s` from here.
    """
    return Call("seal", (log.name, token, trailer, end, ttl_s), _text, log.on)


def close(log: LogRef, trailer: str, ttl_s: int) -> Call[str]:
    """The job has ended otherwise than by its last chunk; followers hear why."""
    return Call("close", (log.name, trailer, ttl_s), _text, log.on)


def follow(log: LogRef, inbox: str, ttl_s: int) -> Call[Followed | None]:
    """Have hints of new chunks sent to an inbox. None while there is no such log."""
    return Call("follow", (log.name, inbox, ttl_s), lambda raw: Followed(*raw) if raw else None, log.on)


def unfollow(log: LogRef, inbox: str) -> Call[int]:
    return Call("unfollow", (log.name, inbox), int, log.on)


def trim(log: LogRef, position: int) -> Call[int]:
    """Drop chunks that end at `position`, a chunk border, or before it."""
    return Call("trim", (log.name, position), int, log.on)


def retire(logs: Sequence[LogRef], ttl_s: int, on: Role) -> Call[int]:
    """How long the logs of an ended task stay; 0 removes them."""
    return Call("retire", (ttl_s, *(log.name for log in logs)), int, on)


def keep(log: LogRef, ttl_s: int) -> Call[str]:
    """A reader is not through yet: the log stays for at least so long."""
    return Call("keep", (ttl_s, log.name), _text, log.on)


def poke(inbox: str, what: str, ttl_s: int, on: Role) -> Call[str]:
    """Wake the reader of an inbox, which is made if there is none. Answers the entry's id."""
    return Call("poke", (inbox, what, ttl_s), _text, on)


def press(ttl_s: int, on: Role) -> Call[str]:
    """Memory is short on a server: what nobody waits for is held back."""
    return Call("press", (ttl_s,), _text, on)


def expire(key: str, due: float) -> Call[str]:
    """When a stored object is to be deleted, in Unix seconds."""
    return Call("expire", (key, str(due)), _text)


def prolong(key: str, due: float) -> Call[str]:
    """The same for an object that several users share: it stays as long as the longest of them asked for."""
    return Call("expire", (key, str(due), "prolong"), _text)


class Hole(Exception):
    """What comes next is not where the reader stands: it must read the log itself, or have it made again."""


class Misaligned(Hole):
    """The log was made again with other borders and its chunks cannot be cut: the reader must begin anew, from 0."""


class LogReader:
    """One reader's position in one log: turns entries and hints into chunks in order, each exactly once.

    `frame_bytes` is the payload's size per frame where a chunk may be cut, so that a log made again with other
    borders can be read on; 0 for payloads that only make sense whole.
    """

    def __init__(self, position: int = 0, frame_bytes: int = 0) -> None:
        self.position = position
        self.ended = False
        self._frame_bytes = frame_bytes
        self._taken = (position, 1)
        """Entries up to this one are taken. A mark belongs to where it ends: those at `position` came before it."""
        self._cut = -1
        """Where the last chunk was cut; marks that end there or before have been taken."""

    @property
    def entry(self) -> str:
        """Id of the entry to read on behind."""
        return "{}-{}".format(*self._taken)

    def hint(self, fields: dict[bytes, bytes]) -> list[LogChunk]:
        """What an inbox entry brings. Raises Hole when the log must be read instead."""
        if self.ended:
            return []
        end = int(fields[b"e"])
        if b"t" in fields:
            if end > self.position:
                raise Hole
            return [self._end(fields[b"t"])]
        if end <= self.position:
            return []
        if not fields[b"d"]:
            raise Hole
        chunk = self._take(int(fields[b"s"]), end, fields[b"d"])
        marks = self._fresh(fields[b"m"])
        self._taken = (end, 1)
        return [LogChunk(chunk.start, end, chunk.payload, marks)]

    def entries(self, entries: Sequence[tuple[bytes, dict[bytes, bytes]]]) -> list[LogChunk]:
        """What reading the log after `entry` brought. Raises Hole when the first new chunk does not join on."""
        chunks: list[LogChunk] = []
        for entry, fields in entries:
            end, kind = map(int, entry.split(b"-"))
            if (end, kind) <= self._taken:
                continue
            if b"m" in fields and chunks and end == self.position:
                chunks[-1] = replace(chunks[-1], marks=self._fresh(fields[b"m"]))
                self._taken = (end, kind)
                continue
            try:
                chunks += self._entry(end, fields)
            except Hole:
                if chunks:
                    break  # what was taken must not be lost; the next read meets the hole again
                raise
            self._taken = (end, kind)
        return chunks

    def _entry(self, end: int, fields: dict[bytes, bytes]) -> list[LogChunk]:
        if b"d" not in fields and end != self.position:
            raise Hole
        if b"t" in fields:
            return [self._end(fields[b"t"])]
        if b"m" in fields:
            marks = self._fresh(fields[b"m"])
            return [LogChunk(end, end, b"", marks)] if marks else []
        return [self._take(int(fields[b"s"]), end, fields[b"d"])]

    def pass_by(self, end: int) -> None:
        """Everything up to `end`, marks included, has come another way."""
        self.position = end
        self._taken = (end, 1)

    def spilled(self, start: int, payload: bytes, marks: tuple[WordMark, ...] = ()) -> list[LogChunk]:
        """PCM that has left the log, covering the position. Raises Hole when it does not."""
        chunk = self._take(start, start + len(payload) // self._frame_bytes, payload)
        self._taken = (self.position, 1)
        return [replace(chunk, marks=marks)]

    def _end(self, trailer: bytes) -> LogChunk:
        self.ended = True
        self._taken = (self.position, 2)
        return LogChunk(self.position, self.position, trailer=json.loads(trailer))

    def _take(self, start: int, end: int, payload: bytes) -> LogChunk:
        """Readers never skip; of a chunk that begins before the position only the rest is new."""
        if start > self.position:
            raise Hole
        if start < self.position and not self._frame_bytes:
            raise Misaligned
        self._cut = self.position if start < self.position else -1
        chunk = LogChunk(self.position, end, payload[(self.position - start) * self._frame_bytes :])
        self.position = end
        self._taken = (end, 0)
        return chunk

    def _fresh(self, text: bytes) -> tuple[WordMark, ...]:
        return tuple(mark for mark in decode_marks(text) if mark.end > self._cut)
