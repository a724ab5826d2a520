"""A project's jobs: found by what is known of them, page by page, and deleted."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from speechmill.infra.client import AsyncClient
from speechmill.infra.protocol import Call

Order = Literal["asc", "desc"]
FOREVER_MS = 1 << 52


class UnknownJob(Exception):
    """A page was asked for behind a job that the project does not have."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What listed jobs must be. Of each list one value must hold; nothing asks for nothing."""

    status: tuple[str, ...] = ()
    model: tuple[str, ...] = ()
    group_id: tuple[str, ...] = ()
    custom_id: tuple[str, ...] = ()
    metadata: dict[str, str] = field(default_factory=dict)
    dead: bool = False
    """Only dead letters."""


def list_page(
    project: str, order: Order, behind: str, low_ms: int, high_ms: int, most: int, wanted: Wanted
) -> Call[tuple[str, str, list[str]]]:
    """One step of `list_jobs`: ok or unknown, the job to go on behind ("" when there are no more), jobs."""

    def parse(raw: list[Any]) -> tuple[str, str, list[str]]:
        verdict, last, *jobs = (part.decode() for part in raw)
        return verdict, last, jobs

    return Call("list_jobs", (project, order, behind, low_ms, high_ms, most, json.dumps(asdict(wanted))), parse)


async def list_jobs(
    client: AsyncClient,
    project: str,
    wanted: Wanted,
    most: int,
    order: Order = "desc",
    behind: str = "",
    low_ms: int = 0,
    high_ms: int = FOREVER_MS,
) -> list[str]:
    """Up to `most` ids by time of submission, behind the job called `behind`, submitted from `low_ms` to before
    `high_ms` (server milliseconds). Raises UnknownJob.
    """
    found: list[str] = []
    cursor = behind
    while len(found) < most:
        verdict, last, jobs = await client.run(
            list_page(project, order, cursor, low_ms, high_ms, most - len(found), wanted)
        )
        if verdict == "unknown" and cursor == behind:
            raise UnknownJob
        found += jobs
        if not last:
            break
        cursor = last
    return found


def fade_jobs(jobs: Sequence[str], seconds: int) -> Call[bytes]:
    """Records of ended jobs that nobody will ask for any more go after `seconds`."""
    return Call("fade_jobs", (seconds, *jobs), bytes)


def delete_job(job: str, force: bool) -> Call[str]:
    """The record goes: ok, unknown, running where it has not ended and is not to be ended by force, or ended where it
    has ended and was to be.
    """
    return Call("delete_job", (job, int(force)), bytes.decode)
