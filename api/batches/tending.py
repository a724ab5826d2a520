"""Seeing to groups and batches, step by step, in a Celery process (speech_api §5.3, §5.4.1)."""

import asyncio
import logging
import threading
import time

from redis.exceptions import RedisError

from speechmill.api.batches.finish import finish
from speechmill.api.batches.prepare import prepare
from speechmill.api.bulk.cancel import cancel_jobs
from speechmill.api.bulk.expand import expand
from speechmill.api.bulk.retry import retry_some
from speechmill.api.errors import ApiError
from speechmill.api.farm import FarmState
from speechmill.configs.settings import Settings
from speechmill.infra.errors import FarmError
from speechmill.infra.groups import GroupRecord, close_group, end_batch, find_group

log = logging.getLogger(__name__)


class Tender:
    """For the threads of Celery: an event loop of its own, with what an API process holds."""

    def __init__(self, settings: Settings) -> None:
        """Raises ConfigError."""
        self._farm = FarmState(settings)
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="tending", daemon=True).start()
        asyncio.run_coroutine_threadsafe(self._farm.start(), self._loop).result()

    def __call__(self, group: str) -> None:
        """What fails is tried again when the group's lease is over."""
        try:
            asyncio.run_coroutine_threadsafe(tend(self._farm, group), self._loop).result()
        except (ApiError, FarmError, RedisError) as error:
            log.warning("not tended", extra={"group": group, "error": type(error).__name__})


async def tend(farm: FarmState, group_id: str) -> None:
    """Whatever is to be done for the group now. Safe to do at any time, and by several at once."""
    group = await find_group(farm.client, group_id)
    if group is None or group.is_over:
        return
    if time.time() > group.deadline:
        group = await _lapse(farm, group)
    elif group.state == "validating":
        await prepare(farm, group)
        group = await find_group(farm.client, group_id)
    if group is None or group.is_over:
        return
    if group.state == "cancelling":
        await cancel_jobs(farm, group)
        group = await find_group(farm.client, group_id)
    else:
        if group.again:
            await retry_some(farm, group)
        if group.submitted < group.expected and not group.closed:
            await expand(farm, group)
    if group is not None and _is_to_be_written(group):
        await finish(farm, group)


async def _lapse(farm: FarmState, group: GroupRecord) -> GroupRecord | None:
    """The group after its deadline: jobs that are in work have deadlines of their own."""
    if group.state == "validating":
        await farm.client.run(end_batch(group.id, "expired", {}))
    else:
        await farm.client.run(close_group(group.id, "expired"))
    return await find_group(farm.client, group.id)


def _is_to_be_written(group: GroupRecord) -> bool:
    left = group.counts["queued"] + group.counts["running"]
    return group.kind == "batch" and group.state in ("finalizing", "cancelling") and not left
