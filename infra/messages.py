"""Everything that crosses Redis, with its encoding: requests, claims, chunks, marks, trailers.

Payloads are raw little-endian arrays; records are JSON. Nothing here knows tensors.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from speechmill.infra.keys import Task

PAYLOAD_VERSION = 3
"""Of the request record and the farm's own logs. A worker leaves tasks of a higher version to others."""


@dataclass(frozen=True, slots=True)
class SpeechRequest:
    """What workers need of a validated request besides the segments' texts."""

    voice: str
    seed: int
    response_format: str
    sample_rate: int
    """Of the `out` log and everything made from it, in Hz."""
    channels: int
    params: dict[str, Any] = field(default_factory=dict)
    """Parameters that the model itself honours."""
    assets: dict[str, str] = field(default_factory=dict)
    """Objects in the store by what they are to the model: `clip` or `features`."""
    stretch: float = 1.0
    """Tempo that `finish` applies; 1.0 where the model speaks at the asked speed itself."""
    silence_ms: int = 0
    """Pause between segments."""
    keep_s: int = 600
    """How long the stored object is kept after the end."""
    replay: bool = False
    """The samples can be read after the end as well, although the stored object does not hold them."""
    open_text: bool = False
    """The text of the only segment is still being written when the job is submitted: it comes in a log of its own."""

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> "SpeechRequest":
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True)
class JobDetails:
    """What a client is told of its job and workers need not know."""

    voice: str = ""
    filename: str = ""
    """What the result is called when it is downloaded; "" for a name made from the job's id."""
    ttl_s: int = 600
    """How long the result is kept after the end."""
    text_tokens: int = 0
    audio_tokens: int = 0
    """Codec frames of a reference recording that the model hears."""
    frame_rate: float = 0.0
    """Of the first stage, in Hz: what output tokens are counted by."""

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False)

    def usage(self, seconds: float) -> dict[str, Any]:
        """Text counts characters where the model's tokenizer is not at hand; output counts the first stage's frames."""
        made = round(seconds * self.frame_rate)
        heard = self.text_tokens + self.audio_tokens
        return {
            "input_tokens": heard,
            "output_tokens": made,
            "total_tokens": heard + made,
            "input_token_details": {"text_tokens": self.text_tokens, "audio_tokens": self.audio_tokens},
        }


@dataclass(frozen=True, slots=True)
class Submission:
    """A job as `submit` takes it."""

    job: str
    model: str
    stages: tuple[str, ...]
    segments: tuple[str, ...]
    request: SpeechRequest
    tail: tuple[str, ...] = ("finish", "store")
    """Farm stages that the job goes through as a whole; the last one ends it."""
    project: str = "default"
    counted: bool = True
    """Among the project's jobs, which are limited; False for what the farm does for many."""
    listed: bool = True
    """The project sees it as a job of its own; False for the lines of a batch, which it sees as a batch."""
    job_class: str = "interactive"
    live: bool = False
    """Somebody listens while it is made."""
    timeout_s: float = 600.0
    """From submission, and from each retry, to the deadline."""
    left_s: float | None = None
    """The same for the first take, of a line that has waited with its group already."""
    retention_s: int = 600
    """How long records stay after the end."""
    max_attempts: int = 3
    ahead: int = 4
    order: str = "independent"
    notify: bool = False
    """The end is told to the outside through the outbox."""
    idempotency_key: str = ""
    details: JobDetails = JobDetails()
    custom_id: str | None = None
    group_id: str | None = None
    line: int = 0
    """Of a group's items, from 1: only the one behind the last is taken. 0 for a job that is asked for by itself."""
    line_end: int = 0
    """Byte of the items at which the next line begins."""
    metadata: dict[str, str] = field(default_factory=dict)
    webhook: str = ""
    """`{"url", "events"}` as JSON; "" for none."""
    asked: str = ""
    """The request as the client gave it, as JSON without audio."""
    account: tuple[str, ...] = ()
    """A key and periods of time, whose quotas the audio is counted in at the end; () for none."""

    def record(self) -> str:
        """Fields of the job's hash, as JSON; what there is none of has no field."""
        metadata = json.dumps(self.metadata, ensure_ascii=False) if self.metadata else ""
        optional = {
            "custom_id": self.custom_id,
            "group_id": self.group_id,
            "metadata": metadata,
            "webhook": self.webhook,
            "account": " ".join(self.account),
            "left_ms": int(self.left_s * 1000) if self.left_s is not None else None,
            "line": self.line,
            "line_end": self.line_end,
            "open": int(self.request.open_text),
        }
        return json.dumps(
            {
                **{name: value for name, value in optional.items() if value},
                "model": self.model,
                "stages": json.dumps(self.stages),
                "tail": json.dumps(self.tail),
                "project": self.project,
                "counted": int(self.counted),
                "listed": int(self.counted and self.listed),
                "class": self.job_class,
                "live": int(self.live),
                "timeout_ms": int(self.timeout_s * 1000),
                "retention_s": self.retention_s,
                "max_attempts": self.max_attempts,
                "ahead": self.ahead,
                "order": self.order,
                "notify": int(self.notify),
                "payload": PAYLOAD_VERSION,
                "request": self.request.to_json(),
                "details": self.details.to_json(),
                "asked": self.asked,
            }
        )


@dataclass(frozen=True, slots=True)
class Heard:
    """How far a job is on its way to whoever listens."""

    joined: int = 0
    """Segments that `finish` has joined."""
    samples: int = 0
    """Of them, in the `out` log."""
    playing_s: float | None = None
    """Since the job's first audio was there; None before."""
    stalled_s: float = 0.0
    """For which the listener has stood still since, for want of audio, as far as that is known."""

    @classmethod
    def parse(cls, joined: bytes, samples: bytes, playing_ms: bytes, stalled_ms: bytes) -> "Heard":
        playing_s = None if playing_ms == b"-1" else float(playing_ms) / 1000
        return cls(int(joined), int(samples), playing_s, int(stalled_ms) / 1000)


@dataclass(frozen=True, slots=True)
class Claim:
    """A task that is now ours, and what it takes to work on it."""

    task: Task
    token: str
    text: str
    attempts: int
    solo: bool
    """Suspected of harming its neighbours: runs alone."""
    base: int
    """Where a reader wants the log from; -1 for wherever it stands."""
    model: str
    stages: tuple[str, ...]
    segments: int
    request: SpeechRequest
    live: bool
    ttl_s: int
    """How long the log must stay: the job's time left plus retention."""
    job_class: str
    age_s: float
    """Since the job was submitted."""
    heard: Heard

    @property
    def previous_stage(self) -> str | None:
        """The model stage whose log a model stage reads; None for the first."""
        at = self.stages.index(self.task.stage)
        return self.stages[at - 1] if at else None

    @property
    def open_text(self) -> bool:
        """Whether the text comes bit by bit, to the first stage. A take that is not the first has all of it."""
        return self.request.open_text and self.task.take == 1


@dataclass(frozen=True, slots=True)
class WordMark:
    """A word in a log, in the log's units."""

    word: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class LogChunk:
    """A piece of a log, placed by the positions it covers. `trailer` is set on the last one, which is empty."""

    start: int
    end: int
    payload: bytes = b""
    marks: tuple[WordMark, ...] = ()
    trailer: Mapping[str, Any] | None = None


def finish_reason(facts: Mapping[str, Any]) -> str:
    """Of a log's trailer, or of a job's result: `stop`, or `length` where a limit came before the text's end."""
    return str(facts.get("finish_reason", "stop"))


def encode_marks(marks: tuple[WordMark, ...]) -> str:
    return json.dumps([[m.word, m.start, m.end] for m in marks], ensure_ascii=False) if marks else ""


def decode_marks(text: bytes) -> tuple[WordMark, ...]:
    return tuple(WordMark(*mark) for mark in json.loads(text)) if text else ()


def problem(code: str, message: str) -> str:
    """An error as it stands in job records and trailers."""
    return json.dumps({"code": code, "message": message}, ensure_ascii=False)
