"""One claimed task on its way through this process, and the events that the threads exchange about it."""

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from speechmill.infra.jobs import log_of
from speechmill.infra.keys import FARM_STAGES, LogRef, Task, text_log
from speechmill.infra.messages import Claim, Heard
from speechmill.infra.protocol import LogReader
from speechmill.models.stage import Chunk, Emission, Resume

S16_BYTES = 2
CHARS_PER_S = 15.0
"""Of speech, roughly, for segments before any audio of the job is there."""


@dataclass(eq=False, slots=True)
class Work:
    """Shared by the threads of one worker; each field is written by the one thread named beside it."""

    claim: Claim
    pool: str
    log: LogRef | None
    """The log that this task writes; what files an object has none."""
    inputs: deque[LogRef] = field(default_factory=deque)
    """Logs still to be read, in order (reader)."""
    reader: LogReader | None = None
    """Position in the first of them (reader)."""
    history: tuple[tuple[str, bytes], ...] = ()
    """Texts and codes of segments before this one, where the model hears them again (reader)."""
    last_input: float = field(default_factory=time.monotonic)
    last_look: float = 0.0
    """When the silence was last looked into (reader)."""
    end: int = 0
    """Own log's end as far as it is written (writer)."""
    crc: int = 0
    made: int = 0
    """Own log's end as far as it is computed (compute)."""
    trailer: Mapping[str, object] = field(default_factory=dict)
    """What the end of its input says; it stands in the end of its own log too (compute)."""
    last_made: float = 0.0
    """When that last moved (compute)."""
    pending: int = 0
    """Emissions computed but not yet written (compute adds, writer takes)."""
    slot: int = -1
    """Place in the stage's batch; -1 while it has none (compute)."""
    arrived: float = 0.0
    """When its job was submitted; monotonic clock."""
    fed: "tuple[Work, int] | None" = None
    """Producer in this process, and how much of its log was handed over in memory (compute)."""
    joined: int = 0
    """Segments of the job that `finish` has joined, as last heard (reader, keeper; of `finish` itself the writer)."""
    before_s: float = 0.0
    """Audio of the job in front of the segment: what is joined is known, the rest is taken to be like it (reader,
    keeper).
    """
    playing_since: float | None = None
    """When the job's first audio was there for a listener; monotonic clock. None before (compute where it is made here,
    reader, keeper: whoever knows first).
    """
    sent: float = float("-inf")
    """When its first piece went to the next stage, if the job was not heard before; monotonic clock (compute)."""
    stalled_s: float = 0.0
    """How long its listener has stood still for want of what it makes: it plays on from there when some comes
    (compute).
    """
    waited_s: float = 0.0
    """How long the job's listener has stood still, as last heard (reader, keeper)."""
    begun: bool = False
    """It has been in a step (compute)."""
    sealed: bool = False
    """Nothing follows in its log (writer)."""
    gone: bool = False
    """Finished, lost or closed: whatever still arrives for it is dropped."""

    def __post_init__(self) -> None:
        self.arrived = time.monotonic() - self.claim.age_s
        self._place(self.claim.heard)

    def hear(self, heard: Heard) -> None:
        """News of how far the job is heard; `finish` knows that itself, and old news come late."""
        if self.task.stage != "finish" and heard.joined >= self.joined:
            self._place(heard)

    def _place(self, heard: Heard) -> None:
        self.joined = heard.joined
        self.before_s = _audio_before_s(self.claim, heard)
        self.waited_s = max(self.waited_s, heard.stalled_s)
        if heard.playing_s is not None:  # news on their way make it seem later than it was
            since = time.monotonic() - heard.playing_s
            self.playing_since = since if self.playing_since is None else min(self.playing_since, since)

    @property
    def still_s(self) -> float:
        """How long the listener has stood still, as far as is known."""
        return max(self.stalled_s, self.waited_s)

    @property
    def task(self) -> Task:
        return self.claim.task

    @property
    def assets(self) -> Mapping[str, str]:
        """Stored objects that the stage needs, by name: those of the request for a model's stages."""
        return {} if self.task.stage in FARM_STAGES else self.claim.request.assets

    @property
    def position(self) -> int:
        """How far it has come: in its own log, or in what it reads where it writes none."""
        return self.end if self.log is not None or self.reader is None else self.reader.position

    @property
    def urgent(self) -> bool:
        """Whether `finish` waits for this very task: it may append although memory is short."""
        return self.task.segment is None or self.task.segment == self.joined


@dataclass(frozen=True, slots=True)
class Open:
    work: Work
    resume: Resume
    assets: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Feed:
    work: Work
    chunk: Chunk


@dataclass(frozen=True, slots=True)
class Drop:
    """The task is not ours any more: free its slot."""

    work: Work


Event = Open | Feed | Drop


@dataclass(frozen=True, slots=True)
class Written:
    """An emission on its way to the log. `needs`: what it was made from must be in its own log first."""

    work: Work
    emission: Emission
    needs: tuple[Work, int] | None = None
    handed_over: bool = False
    """The follower in this process has it already."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The task's work went wrong. `fatal`: the input is at fault and the job ends; else it is tried again, alone."""

    work: Work
    code: str
    message: str
    fatal: bool


Outcome = Written | Failed


def _audio_before_s(claim: Claim, heard: Heard) -> float:
    if not heard.joined:
        return (claim.task.segment or 0) * len(claim.text) / CHARS_PER_S
    joined_s = heard.samples / claim.request.sample_rate
    ahead = max((claim.task.segment or 0) - heard.joined, 0)
    return joined_s + ahead * joined_s / heard.joined


def input_logs(claim: Claim, first_segment: int = 0) -> deque[LogRef]:
    """The logs that a task reads, in order; for a model's first stage only that of an open text."""
    task = claim.task
    if task.stage == "store":
        return deque([log_of(Task(task.job, task.take, None, "finish"), claim.stages)])
    if task.stage in ("finish", "keep"):
        last = claim.stages[-1]
        segments = range(first_segment, claim.segments)
        return deque(log_of(Task(task.job, task.take, k, last), claim.stages) for k in segments)
    if before := claim.previous_stage:
        return deque([log_of(Task(task.job, task.take, task.segment, before), claim.stages)])
    return deque([text_log(task.job)] if claim.open_text else [])


def frame_bytes(log: LogRef, channels: int) -> int:
    """Size of a frame where chunks may be cut anywhere: PCM. Codes only make sense whole."""
    return S16_BYTES * channels if log.on == "chunks" else 0
