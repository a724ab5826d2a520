"""Groups of jobs that were asked for together; batches are groups that come from a file (speech_api §5.3, §5.4.1).

A group's items stand in an object of the store, one line for each job that is to be. They become jobs in this order, a
window at a time; the id of each job follows from its line, and the record tells which line is next, so that whoever
goes on with it, and however often, no line becomes two jobs.
"""

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, cast

from ulid import ULID

from speechmill.infra.client import AsyncClient
from speechmill.infra.messages import JobDetails, SpeechRequest, Submission
from speechmill.infra.protocol import Call

Kind = Literal["jobs", "batch"]
OVER = frozenset({"completed", "failed", "cancelled", "expired"})
ENDS = ("succeeded", "failed", "cancelled", "expired")
_ID = re.compile(r"(?:jobgrp|batch)_[0-7][0-9A-HJKMNP-TV-Z]{25}", re.ASCII)
_PAGE = 500


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """A group as its hash tells it. Times are server milliseconds."""

    id: str
    project: str
    kind: Kind
    state: str
    created: int
    times: dict[str, int]
    """When it entered each state that it was in."""
    counts: dict[str, int]
    """total, queued, running, rejected, and each way to end; queued counts lines that are no jobs yet as well."""
    submitted: int
    """Lines that have become jobs."""
    ends: int
    """How often a job of it has ended: the last place of all."""
    offset: int
    """Byte of the items at which the next one begins."""
    closed: str
    """How the lines that are no jobs yet have ended, where none is to become one any more."""
    again: frozenset[str]
    """How jobs have ended that are to be sent again; most often there is nothing of the kind."""
    again_behind: int
    """Place among the ended ones up to which that is done."""
    again_upto: int
    """And the last one that is meant."""
    window: int
    """Jobs that may be in work at a time."""
    items: str
    """Key of the object with the items; "" for none yet."""
    items_bytes: int
    began: int
    """When its time began to run: at creation, or when lines of it that had ended unspoken were taken up again."""
    deadline_s: float
    """From then; whatever is no job by then never will be."""
    retention_s: int
    """How long the record stays when the group is over."""
    project_jobs: int
    """Jobs of the project that may be in work, 0 for no limit."""
    metadata: dict[str, str]
    details: dict[str, Any]
    """What a client is told, and what is needed for a batch's file to be read and written."""

    @property
    def is_over(self) -> bool:
        return self.state in OVER

    @property
    def expected(self) -> int:
        """Lines."""
        return self.counts["total"] - self.counts["rejected"]

    @property
    def deadline(self) -> float:
        """Unix seconds."""
        return self.began / 1000 + self.deadline_s


def job_of(group: str, line: int) -> str:
    """Id of the job that a line, from 1, becomes."""
    return f"job_{derived_ulid(group, f'job {line}')}"


def derived_ulid(group: str, what: str) -> ULID:
    """The same one for the same thing of a group, with the group's time."""
    made = ULID.from_str(group.rpartition("_")[2])
    return ULID.from_bytes(made.bytes[:6] + hashlib.sha256(f"{group} {what}".encode()).digest()[:10])


def is_group_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def dump_item(job: Submission) -> bytes:
    """A line of a group's items."""
    return json.dumps(asdict(job), ensure_ascii=False).encode() + b"\n"


def load_item(line: bytes) -> Submission:
    fields = json.loads(line)
    fields["request"], fields["details"] = SpeechRequest(**fields["request"]), JobDetails(**fields["details"])
    for name in ("stages", "segments", "tail", "account"):
        fields[name] = tuple(fields[name])
    return Submission(**fields)


def parse_group(group: str, raw: Mapping[bytes, bytes]) -> GroupRecord | None:
    """None for a group that is not known, or not any more."""
    if b"state" not in raw:
        return None
    text = {key.decode(): value.decode() for key, value in raw.items()}
    return GroupRecord(
        id=group,
        project=text["project"],
        kind=cast(Kind, text["kind"]),
        state=text["state"],
        created=int(text["created"]),
        times={name.removesuffix("_at"): int(value) for name, value in text.items() if name.endswith("_at")},
        counts=_counts(text),
        submitted=int(text["submitted"]),
        ends=int(text.get("ends", 0)),
        offset=int(text["offset"]),
        closed=text.get("closed", ""),
        began=int(text["began"]),
        again=frozenset(filter(None, text.get("again", "").split(","))),
        again_behind=int(text.get("again_behind", 0)),
        again_upto=int(text.get("again_upto", 0)),
        window=int(text["window"]),
        items=text.get("items", ""),
        items_bytes=int(text.get("items_bytes", 0)),
        deadline_s=float(text["deadline_s"]),
        retention_s=int(text["retention_s"]),
        project_jobs=int(text["project_jobs"]),
        metadata=json.loads(text["metadata"]),
        details={
            name.removeprefix("told_"): json.loads(value) for name, value in text.items() if name.startswith("told_")
        },
    )


def _counts(text: Mapping[str, str]) -> dict[str, int]:
    total, rejected, running = (int(text.get(name, 0)) for name in ("total", "rejected", "running"))
    ends = {name: int(text.get(name, 0)) for name in ENDS}
    queued = total - rejected - running - sum(ends.values())
    return {"total": total, "queued": queued, "running": running, **ends, "rejected": rejected}


def told(details: Mapping[str, Any]) -> dict[str, str]:
    """Details as they stand in the record."""
    return {f"told_{name}": json.dumps(value, ensure_ascii=False) for name, value in details.items()}


def create_group(
    group: str, fields: Mapping[str, Any], idempotency_key: str = "", counts_s: int = 86_400, see_to_ms: int = 0
) -> Call[str]:
    """All of the group at once. Answers its id, or that of the group which the same key stands for.

    Somebody sees to it in `see_to_ms`.
    """
    args = (group, idempotency_key, counts_s, see_to_ms, json.dumps(fields, ensure_ascii=False))
    return Call("create_group", args, bytes.decode)


def begin_batch(batch: str, fields: Mapping[str, Any]) -> Call[str]:
    """Its file has been read: ok, or stale where it is not being validated any more."""
    return Call("begin_batch", (batch, json.dumps(fields, ensure_ascii=False)), bytes.decode)


def end_batch(batch: str, state: str, fields: Mapping[str, Any]) -> Call[str]:
    """It is over: ok, or stale where it was before."""
    return Call("end_batch", (batch, state, json.dumps(fields, ensure_ascii=False)), bytes.decode)


def close_group(group: str, how: str) -> Call[str]:
    """cancelled or expired: no further line becomes a job. Answers ok, unknown, or the state that forbids it."""
    return Call("close_group", (group, how), bytes.decode)


def reopen_group(group: str, how: str) -> Call[int]:
    """Lines that were cancelled or expired before they became jobs may become jobs after all. Answers how many."""
    return Call("reopen_group", (group, how), int)


def retry_group(group: str, states: Collection[str]) -> Call[str]:
    """Jobs that have ended so by now are to be sent again. Answers ok, or stale where the group is being cancelled."""
    return Call("retry_group", (group, ",".join(sorted(states))), bytes.decode)


def retried(group: str, place: int | None) -> Call[str]:
    """Up to a place among the ended ones that is done; None for all of it."""
    return Call("retried", (group,) if place is None else (group, place), bytes.decode)


def due_groups(most: int, lease_s: float) -> Call[list[str]]:
    """Groups that somebody is to see to. Each is answered once, and again only after the lease."""
    return Call("due_groups", (most, int(lease_s * 1000)), lambda raw: [group.decode() for group in raw])


def tend_group(group: str, wait_s: float) -> Call[str]:
    """Somebody is to see to it in `wait_s` seconds, if it is not over by then."""
    return Call("tend_group", (group, int(wait_s * 1000)), bytes.decode)


async def find_group(client: AsyncClient, group: str) -> GroupRecord | None:
    if not is_group_id(group):
        return None
    return parse_group(group, await client.read_hash(client.keys.group(group)))


async def open_jobs(client: AsyncClient, group: str) -> list[str]:
    """Jobs of the group that have not ended: a window's worth."""
    return [job.decode() for job in await client.read_set(client.keys.open_jobs(group))]


async def ended_jobs(client: AsyncClient, group: str, behind: int) -> list[tuple[str, int]]:
    """Some of the group's jobs in the order in which they ended, each with its place, from behind a place on."""
    found = await client.server("control").zrange(
        client.keys.ended_jobs(group), f"({behind}", "+inf", byscore=True, offset=0, num=_PAGE, withscores=True
    )
    return [(job.decode(), int(place)) for job, place in cast(list[tuple[bytes, float]], found)]


async def ended_place(client: AsyncClient, group: str, job: str) -> int | None:
    """The place at which a job ended: the first one, where it ended several times."""
    server = client.server("control")
    owner, first = cast(list[bytes | None], await server.hmget(client.keys.job(job), "group_id", "ended_at_first"))
    if owner == group.encode() and first is not None:
        return int(first)
    place = await server.zscore(client.keys.ended_jobs(group), job)
    return int(place) if place is not None else None


async def is_batch_of(client: AsyncClient, project: str, batch: str) -> bool:
    return await client.server("control").zscore(client.keys.batches(project), batch) is not None


async def list_batches(client: AsyncClient, project: str, limit: int, after: str) -> list[GroupRecord]:
    """At most `limit` batches behind the one called `after`, newest first."""
    server, key = client.server("control"), client.keys.batches(project)
    found: list[GroupRecord] = []
    while len(found) < limit:
        border = f"({after}" if after else "+"
        raws = cast(list[bytes], await server.zrevrangebylex(key, border, "-", start=0, num=limit))
        ids = [raw.decode() for raw in raws]
        if not ids:
            break
        after = ids[-1]
        for batch in ids:
            record = await find_group(client, batch)
            if record is None:
                await server.zrem(key, batch)
            else:
                found.append(record)
    return found[:limit]
