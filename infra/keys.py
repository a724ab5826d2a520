"""Names of tasks, logs and keys. `functions/keys.lua` says what each key holds and lists its lifetime."""

from dataclasses import dataclass
from typing import Literal

from ulid import ULID

Role = Literal["control", "chunks"]
JOB_CLASSES = ("interactive", "normal", "batch")
ONGOING = "ongoing"
READY_QUEUES = (ONGOING, *JOB_CLASSES)
"""Of a pool; what goes on with a job that somebody hears stands before all classes."""
FARM_STAGES = ("finish", "store", "keep")
FILING_STAGES = ("store", "keep")
"""They end a job with an object in the store, and write no log."""
ENCODE = "encode"
"""The model stage that derives features from a recording; it makes up a job of its own."""
TEXT = "text"
"""In a stage's place: names the log of a text that is still being written. No stage writes it or can make it again."""


def new_id(prefix: str) -> str:
    """`job_01J…`: a ULID behind what it names."""
    return f"{prefix}_{ULID()}"


@dataclass(frozen=True, slots=True)
class Task:
    """(job, take, segment, stage): what a worker claims. `segment` is None for a stage that runs once per job."""

    job: str
    take: int
    segment: int | None
    stage: str

    def __str__(self) -> str:
        return f"{self.job}/{self.take}/{'j' if self.segment is None else self.segment}/{self.stage}"

    @classmethod
    def parse(cls, name: str) -> "Task":
        job, take, segment, stage = name.split("/")
        return cls(job, int(take), None if segment == "j" else int(segment), stage)


@dataclass(frozen=True, slots=True)
class LogRef:
    """One task's log and the server that it lives on."""

    task: Task
    on: Role

    @property
    def name(self) -> str:
        return str(self.task)


def features_key(model: str, mode: str, version: int, clip_sha256: str) -> str:
    """Object with what a model derives from a recording; `version` is that of the features' layout."""
    return f"features/{model.replace('/', '--')}/{mode}/v{version}/{clip_sha256}"


def out_log(job: str, take: int) -> LogRef:
    """The log that listeners hear: what `finish` writes."""
    return LogRef(Task(job, take, None, "finish"), "chunks")


def text_log(job: str) -> LogRef:
    """The log that the first stage reads an open text from: UTF-8, counted in bytes, whole characters in each chunk.

    The API writes it during the first take; later ones have all of the text in their segment.
    """
    return LogRef(Task(job, 1, 0, TEXT), "control")


@dataclass(frozen=True, slots=True)
class Keys:
    """Keys that callers read directly; everything else is touched by the functions only."""

    prefix: str = "tts"
    shard: int = 0

    @property
    def root(self) -> str:
        return f"{self.prefix}:{{{self.shard}}}"

    def job(self, job: str) -> str:
        return f"{self.root}:job:{job}"

    def segments(self, job: str) -> str:
        return f"{self.root}:segments:{job}"

    def asked(self, job: str) -> str:
        return f"{self.root}:asked:{job}"

    def owned(self, job: str) -> str:
        return f"{self.root}:owned:{job}"

    def tasks(self, job: str) -> str:
        return f"{self.root}:tasks:{job}"

    def task(self, task: Task) -> str:
        return f"{self.root}:task:{task}"

    def ready(self, pool: str, job_class: str) -> str:
        return f"{self.root}:ready:{pool}:{job_class}"

    def queued(self, model: str, job_class: str) -> str:
        return f"{self.root}:queued:{model}:{job_class}"

    def live(self) -> str:
        return f"{self.root}:live"

    def leased(self) -> str:
        return f"{self.root}:leased"

    def workers(self, pool: str) -> str:
        return f"{self.root}:workers:{pool}"

    def worker(self, worker: str) -> str:
        return f"{self.root}:worker:{worker}"

    def inbox(self, reader: str) -> str:
        return f"{self.root}:inbox:{reader}"

    def log(self, ref: LogRef) -> str:
        return f"{self.root}:log:{ref.name}"

    def log_meta(self, ref: LogRef) -> str:
        return f"{self.root}:log:{ref.name}:meta"

    def pressure(self) -> str:
        return f"{self.root}:pressure"

    def dead(self) -> str:
        return f"{self.root}:dead"

    def outbox(self) -> str:
        return f"{self.root}:outbox"

    def webhooks(self, project: str) -> str:
        return f"{self.root}:webhooks:{project}"

    def webhook_secrets(self) -> str:
        return f"{self.root}:webhooksecrets"

    def webhook_outcomes(self) -> str:
        return f"{self.root}:webhookoutcomes"

    def delivery(self, delivery: str) -> str:
        return f"{self.root}:delivery:{delivery}"

    def deliveries(self, target: str) -> str:
        return f"{self.root}:deliveries:{target}"

    def due(self, target: str) -> str:
        return f"{self.root}:due:{target}"

    def group(self, group: str) -> str:
        return f"{self.root}:group:{group}"

    def open_jobs(self, group: str) -> str:
        return f"{self.root}:open:{group}"

    def ended_jobs(self, group: str) -> str:
        return f"{self.root}:ended:{group}"

    def batches(self, project: str) -> str:
        return f"{self.root}:batches:{project}"

    def expiry(self) -> str:
        """Sorted set of stored objects by the second at which they are to be deleted."""
        return f"{self.root}:expiry"

    def file(self, file: str) -> str:
        return f"{self.root}:file:{file}"

    def files(self, project: str) -> str:
        return f"{self.root}:files:{project}"

    def api_keys(self) -> str:
        return f"{self.root}:apikeys"

    def voices(self, project: str) -> str:
        return f"{self.root}:voices:{project}"

    def consents(self, project: str) -> str:
        return f"{self.root}:consents:{project}"
