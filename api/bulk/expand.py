"""Lines of a group become jobs, as many at a time as its window holds (speech_api §5.4.1)."""

import time
from collections.abc import AsyncIterator
from dataclasses import replace

from speechmill.api.bulk.lines import lines_of
from speechmill.api.farm import FarmState
from speechmill.api.http.ranges import stored_bytes
from speechmill.infra.groups import GroupRecord, load_item, tend_group
from speechmill.infra.protocol import Limits, submit

BUSY_S = 1.0
"""Pause where the queue has no room for the group."""
LINE_BYTES = 64 << 20
_SOON_S = 0.001


async def expand(farm: FarmState, group: GroupRecord) -> None:
    """Go on behind the last line that became a job. Safe to do at any time, and by several at once.

    Half of the queue is left to those who ask for one job at a time.
    """
    limits = Limits(max(farm.settings.limits.queue_depth // 2, 1), group.project_jobs)
    line, offset = group.submitted, group.offset
    async for text in item_lines(farm, group, offset):
        line, offset = line + 1, offset + len(text)
        job = load_item(text)
        left_s = max(group.began / 1000 + job.timeout_s - time.time(), _SOON_S)
        answer = await farm.client.run(submit(replace(job, left_s=left_s, line=line, line_end=offset), limits))
        if answer.answer != "ok":
            if answer.answer in ("full", "quota"):
                await farm.client.run(tend_group(group.id, BUSY_S))
            return


async def item_lines(farm: FarmState, group: GroupRecord, offset: int = 0) -> AsyncIterator[bytes]:
    """Lines of the group's items, from the one at a byte on."""
    pieces = stored_bytes(farm, group.items, offset, group.items_bytes)
    async for text in lines_of(pieces, LINE_BYTES):
        yield text
