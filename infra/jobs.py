"""Ending a job in full, and reading its record: the steps around the protocol that callers share."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

from speechmill.infra.client import Client
from speechmill.infra.keys import ENCODE, FARM_STAGES, FILING_STAGES, LogRef, Role, Task, out_log
from speechmill.infra.messages import JobDetails, SpeechRequest
from speechmill.infra.protocol import Call, close, end_job, retire

TERMINAL = frozenset({"succeeded", "failed", "cancelled", "expired"})


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job as its hash tells it. Times are server milliseconds, 0 for not yet."""

    job: str
    state: str
    model: str
    stages: tuple[str, ...]
    project: str
    job_class: str
    take: int
    version: int
    segments: int
    joined: int
    samples: int
    created: int
    started: int
    first_audio: int
    finished: int
    attempt: int
    max_attempts: int
    timeout_ms: int
    """From submission, or the last retry, to the deadline."""
    listed: bool
    """One that the project knows of; others the farm gave itself, or are lines of a batch."""
    live: bool
    request: SpeechRequest
    error: dict[str, Any] | None
    result: dict[str, Any] | None
    dead_task: str
    details: JobDetails
    custom_id: str | None
    group_id: str | None
    metadata: dict[str, str]

    @property
    def ended(self) -> bool:
        return self.state in TERMINAL


def parse_record(job: str, raw: dict[bytes, bytes]) -> JobRecord | None:
    """None for a job that is not known, or not any more."""
    if b"state" not in raw:
        return None
    text = {key.decode(): value.decode() for key, value in raw.items()}
    return JobRecord(
        job=job,
        state=text["state"],
        model=text["model"],
        stages=tuple(json.loads(text["stages"])),
        project=text["project"],
        job_class=text["class"],
        take=int(text["take"]),
        version=int(text["version"]),
        segments=int(text["segments"]),
        joined=int(text["joined"]),
        samples=int(text.get("samples", 0)),
        created=int(text["created"]),
        started=int(text.get("started", 0)),
        first_audio=int(text.get("first_audio", 0)),
        finished=int(text.get("finished", 0)),
        attempt=int(text.get("attempt", 1)),
        max_attempts=int(text["max_attempts"]),
        timeout_ms=int(text["timeout_ms"]),
        listed=text["listed"] == "1",
        live=text["live"] == "1",
        request=SpeechRequest.from_json(text["request"]),
        error=json.loads(text["error"]) if "error" in text else None,
        result=json.loads(text["result"]) if "result" in text else None,
        dead_task=text.get("dead_task", ""),
        details=JobDetails(**json.loads(text["details"])) if "details" in text else JobDetails(),
        custom_id=text.get("custom_id"),
        group_id=text.get("group_id"),
        metadata=json.loads(text.get("metadata", "{}")),
    )


def log_of(task: Task, stages: tuple[str, ...]) -> LogRef:
    """Where a task's log lives: codes and features stay with the records, PCM has the chunks server."""
    is_pcm = task.stage in FARM_STAGES or (task.stage == stages[-1] and task.stage != ENCODE)
    return LogRef(task, "chunks" if is_pcm else "control")


def retirement(tasks: Iterable[Task], stages: tuple[str, ...], ttl_s: int) -> list[Call[int]]:
    """Calls that let the tasks' logs go after `ttl_s` seconds."""
    logs = [log_of(task, stages) for task in tasks if task.stage not in FILING_STAGES]
    by_role: dict[Role, list[LogRef]] = {}
    for log in logs:
        by_role.setdefault(log.on, []).append(log)
    return [retire(refs, ttl_s, on) for on, refs in by_role.items()]


def aftermath(record: JobRecord, tasks: Iterable[Task], trailer: str, ttl_s: int) -> list[Call[Any]]:
    """What follows the end of a job that did not succeed: listeners hear why, logs go."""
    of_take = [task for task in tasks if task.take == record.take]
    return [close(out_log(record.job, record.take), trailer, ttl_s), *retirement(of_take, record.stages, ttl_s)]


def read_record(client: Client, job: str) -> JobRecord | None:
    return parse_record(job, client.read_hash(client.keys.job(job)))


def read_tasks(client: Client, job: str) -> list[Task]:
    names = client.read_set(client.keys.tasks(job))
    return [Task.parse(name.decode()) for name in names]


def dead_jobs(client: Client) -> list[tuple[str, float]]:
    """Jobs given up on, newest first, with the Unix time at which they were."""
    found = client.server("control").zrevrange(client.keys.dead(), 0, -1, withscores=True)
    return [(job.decode(), when_ms / 1000) for job, when_ms in cast(list[tuple[bytes, float]], found)]


def end(client: Client, job: str, state: str, problem: str, ttl_s: int) -> str:
    """End a job as failed, cancelled or expired, with everything that follows. Answers the state it is in now."""
    reached = client.run(end_job(job, state, problem))
    settle(client, job, ttl_s)
    return reached


def settle(client: Client, job: str, ttl_s: int) -> None:
    """Close what an ended job left open. Safe to call on any job, any number of times."""
    record = read_record(client, job)
    if record is None or record.state not in TERMINAL - {"succeeded"} | {"cancelling"}:
        return
    error = record.error or {"code": record.state, "message": f"the job was {record.state}"}
    client.run_all(aftermath(record, read_tasks(client, job), json.dumps({"error": error}), ttl_s))
