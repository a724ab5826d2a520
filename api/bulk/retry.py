"""What a group did not get spoken is sent again (speech_api §5.4.5)."""

import time
from collections.abc import Collection
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from speechmill.api.bulk.create import UPLOAD_S
from speechmill.api.bulk.results import ended_records
from speechmill.api.errors import ApiError
from speechmill.api.farm import FarmState
from speechmill.infra.groups import GroupRecord, find_group, open_jobs, reopen_group, retried, retry_group
from speechmill.infra.objects import ObjectMissing
from speechmill.infra.protocol import expire, retry

RetryState = Literal["failed", "cancelled", "expired"]


class GroupRetryBody(BaseModel):
    """Which jobs to send again."""

    model_config = ConfigDict(extra="forbid")
    states: Annotated[
        list[RetryState] | None,
        Field(
            description="How they ended; `cancelled` resumes a group that was cancelled. Nothing: `failed`.",
            min_length=1,
            max_length=len(get_args(RetryState)),
            examples=[["failed", "cancelled"]],
        ),
    ] = None


async def send_again(farm: FarmState, group: GroupRecord, states: Collection[str]) -> None:
    """Begins it; Celery goes on. Raises ApiError 409 `job_not_retryable` where the group has nothing of the kind."""
    kept_s = group.deadline_s + group.retention_s + UPLOAD_S  # lines that are no jobs are read to the record's end
    await farm.client.run(expire(group.items, time.time() + kept_s))
    lines = await _reopen(farm, group) if group.closed in states else 0
    unborn = group.expected - group.submitted if group.closed else 0
    ended = sum(group.counts[state] - (unborn if state == group.closed else 0) for state in states)
    begun = ended > 0 and await farm.client.run(retry_group(group.id, states)) == "ok"
    if not begun and not lines:
        wrong = f"no job of the group has ended as {' or '.join(sorted(states))}: `states` may name other ends"
        raise ApiError(409, "job_not_retryable", wrong)
    fresh = await find_group(farm.client, group.id)
    if begun and fresh is not None:
        await retry_some(farm, fresh)


async def retry_some(farm: FarmState, group: GroupRecord) -> None:
    """As many as the group's window has room for. Safe to do at any time, and by several at once."""
    room = group.window - len(await open_jobs(farm.client, group.id))
    async for record, place in ended_records(farm, group, group.again_behind):
        if place > group.again_upto:
            break
        if record.state not in group.again:
            continue
        if room <= 0:
            await farm.client.run(retried(group.id, place - 1))
            return
        await farm.client.run(retry(record.job))
        room -= 1
    await farm.client.run(retried(group.id, None))


async def _reopen(farm: FarmState, group: GroupRecord) -> int:
    """Lines that have not been jobs yet, where the store still has them. Answers how many."""
    try:
        await farm.in_store(farm.objects.look_up, group.items)
    except ObjectMissing:
        return 0
    return await farm.client.run(reopen_group(group.id, group.closed))
