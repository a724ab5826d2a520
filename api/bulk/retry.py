"""What a group did not get spoken is sent again (speech_api §5.4.5)."""

import time
from collections.abc import Collection
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from speechmill.api.bulk.create import UPLOAD_S
from speechmill.api.bulk.results import ended_records
from speechmill.api.errors import ApiError
from speechmill.api.farm import FarmState
from speechmill.infra.groups import GroupRecord, reopen_group
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
    """Raises ApiError 409 `job_not_retryable` where the group has nothing of the kind."""
    ended = [record.job async for record, _ in ended_records(farm, group) if record.state in states]
    answers = [await farm.client.run(retry(job)) for job in ended]
    reopened = await _reopen(farm, group) if group.closed in states else 0
    if not reopened and "ok" not in answers:
        raise ApiError(409, "job_not_retryable", f"no job of the group has ended as {' or '.join(sorted(states))}")


async def _reopen(farm: FarmState, group: GroupRecord) -> int:
    """Lines that have not been jobs yet. They are read from the store, which must keep them until they are."""
    try:
        await farm.in_store(farm.objects.look_up, group.items)
    except ObjectMissing:
        return 0
    await farm.client.run(expire(group.items, time.time() + group.deadline_s + UPLOAD_S))
    return await farm.client.run(reopen_group(group.id, group.closed))
