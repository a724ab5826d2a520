"""Cancelling what is left of a group: its lines at once, its jobs one by one (speech_api §5.4.5)."""

from speechmill.api.errors import ApiError
from speechmill.api.farm import FarmState
from speechmill.infra.groups import GroupRecord, close_group, open_jobs


async def cancel_group(farm: FarmState, group: GroupRecord) -> None:
    """Nothing of it is begun any more when this returns. Raises ApiError 409 `job_already_finished`."""
    answer = await farm.client.run(close_group(group.id, "cancelled"))
    if answer not in ("ok", "cancelled"):
        raise ApiError(409, "job_already_finished", f"{group.id} is {answer} already")
    await cancel_jobs(farm, group)
    await farm.client.wait_durable()


async def cancel_jobs(farm: FarmState, group: GroupRecord) -> None:
    """Those that have not ended. What this process does not get to, Celery does."""
    for job in await open_jobs(farm.client, group.id):
        await farm.cancel(job, "client")
