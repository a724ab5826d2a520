"""The job object (speech_api §5.4.2): what a record says, and what only the queue and the object store know."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from speechmill.api.errors import error_object, from_job
from speechmill.api.farm import FarmState
from speechmill.infra.encode import EXTENSIONS, AudioFormat
from speechmill.infra.jobs import JobRecord
from speechmill.infra.keys import Task
from speechmill.infra.messages import finish_reason

PATH = "/v1/audio/jobs"
PRESIGN_S = 900
TAIL = ("finish", "store")
_LONGEST_WAIT_S = 10
_HOPELESS = ("invalid_value",)
"""Errors that another try would end in as well."""


@dataclass(frozen=True, slots=True)
class _Standing:
    """Where a job stands now: its place in the queue, and the stages that are at it."""

    position: int | None = None
    oldest_ms: float = 0.0
    """Since the job that is next was submitted."""
    stages: frozenset[str] = frozenset()


def path_of(record: JobRecord) -> str:
    return f"{PATH}/{record.job}"


def expires_at(record: JobRecord) -> float | None:
    """When the result goes, in Unix seconds; None before the end."""
    return record.finished / 1000 + record.details.ttl_s if record.finished else None


def filename(record: JobRecord) -> str:
    """What the result is called when it is downloaded."""
    audio_format = cast(AudioFormat, record.request.response_format)
    return record.details.filename or f"{record.job}.{EXTENSIONS[audio_format]}"


def retry_after_s(shown: dict[str, Any]) -> int:
    """When it is worth asking again for a job that has not ended, 1 to 10 seconds."""
    if shown["queue"] is None:
        return 1
    wait_s = int(shown["queue"]["estimated_start_at"]) - int(time.time())
    return min(max(wait_s, 1), _LONGEST_WAIT_S)


async def show_job(farm: FarmState, record: JobRecord) -> dict[str, Any]:
    return (await show_jobs(farm, [record]))[0]


async def show_jobs(farm: FarmState, records: Sequence[JobRecord]) -> list[dict[str, Any]]:
    """The objects, with result URLs that hold for 15 minutes."""
    standings = await _standings(farm, records)
    urls = await farm.in_store(_sign_all, farm, records) if any(record.result for record in records) else {}
    return [_object(record, standings[record.job], urls.get(record.job)) for record in records]


async def asked(farm: FarmState, record: JobRecord) -> dict[str, Any] | None:
    """The request as it was made, without audio."""
    text = await farm.client.server("control").get(farm.client.keys.asked(record.job))
    return json.loads(text) if text else None


def _sign_all(farm: FarmState, records: Sequence[JobRecord]) -> dict[str, str]:
    return {record.job: sign(farm, record) for record in records if record.result and not is_gone(record)}


def sign(farm: FarmState, record: JobRecord) -> str:
    """A URL of the stored result, which must be there."""
    assert record.result is not None
    return farm.objects.presign(record.result["key"], PRESIGN_S, filename(record), record.result["media_type"])


def is_gone(record: JobRecord) -> bool:
    """Whether the result was kept for as long as it had to be, and the record is all that is left."""
    due = expires_at(record)
    return due is not None and time.time() >= due


async def _standings(farm: FarmState, records: Sequence[JobRecord]) -> dict[str, _Standing]:
    keys, now_ms = farm.client.keys, time.time() * 1000
    live = [record for record in records if not record.ended]
    pipe = farm.client.server("control").pipeline(transaction=False)
    for record in live:
        pipe.zrank(keys.queued(record.model, record.job_class), record.job)
        pipe.zrange(keys.queued(record.model, record.job_class), 0, 0, withscores=True)
        pipe.smembers(keys.owned(record.job))
    answers = await pipe.execute() if live else []
    found = {record.job: _Standing() for record in records}
    for index, record in enumerate(live):
        rank, oldest, owned = answers[3 * index : 3 * index + 3]
        waited_ms = now_ms - oldest[0][1] if oldest else 0.0
        stages = frozenset(Task.parse(name.decode()).stage for name in owned)
        found[record.job] = _Standing(rank, waited_ms, stages)
    return found


def _object(record: JobRecord, standing: _Standing, url: str | None) -> dict[str, Any]:
    here = path_of(record)
    due = expires_at(record)
    return {
        "id": record.job,
        "object": "audio.job",
        "status": record.state,
        "version": record.version,
        "created_at": record.created // 1000,
        "started_at": record.started // 1000 or None,
        "first_audio_at": record.first_audio // 1000 or None,
        "finished_at": record.finished // 1000 or None,
        "expires_at": int(due) if due is not None else None,
        "model": record.model,
        "voice": record.details.voice or None,
        "priority": record.job_class,
        "custom_id": record.custom_id,
        "group_id": record.group_id,
        "metadata": record.metadata,
        "attempt": record.attempt,
        "max_attempts": record.max_attempts,
        "queue": _queue(record, standing),
        "progress": {
            "stage": _stage(record, standing),
            "segments_done": record.joined,
            "segments_total": record.segments,
            "audio_ms": round(record.samples * 1000 / record.request.sample_rate),
        },
        "result": show_result(record, url) if record.result is not None else None,
        "error": _error(record),
        "links": {
            "self": here,
            "audio": f"{here}/audio",
            "stream": f"{here}/stream",
            "events": f"{here}/events",
            "cancel": f"{here}/cancel",
        },
    }


def _queue(record: JobRecord, standing: _Standing) -> dict[str, int] | None:
    """A job that came now would wait about as long as the one that is next has waited."""
    if record.state != "queued" or standing.position is None:
        return None
    started_ms = max(record.created + standing.oldest_ms, time.time() * 1000)
    return {"position": standing.position + 1, "estimated_start_at": int(started_ms / 1000)}


def _stage(record: JobRecord, standing: _Standing) -> str:
    """The first stage that is still at work, or that the job waits for."""
    ways = (*record.stages, *TAIL)
    at_work = [stage for stage in ways if stage in standing.stages]
    if at_work:
        return at_work[0]
    return TAIL[-1] if record.joined == record.segments else record.stages[0]


def show_result(record: JobRecord, url: str | None) -> dict[str, Any]:
    """What the job made; `url` is where it can be fetched from."""
    assert record.result is not None
    names = ("format", "media_type", "bytes", "sha256", "sample_rate", "channels", "duration_ms", "seed")
    return {
        **{name: record.result[name] for name in names},
        "finish_reason": finish_reason(record.result),
        "usage": record.details.usage(record.result["frames"] / record.result["sample_rate"]),
        "word_timestamps": record.result["word_timestamps"],
        "url": url,
        "url_expires_at": int(time.time()) + PRESIGN_S if url else None,
    }


def _error(record: JobRecord) -> dict[str, Any] | None:
    if record.state not in ("failed", "expired"):
        return None
    error = record.error or {"code": record.state, "message": "the job did not end well"}
    told = error_object(from_job(error, record.job))
    del told["job_id"]
    return {**told, "retryable": told["code"] not in _HOPELESS}
