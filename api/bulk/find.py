"""A group by its id, as far as the caller may know of it."""

from speechmill.api.callers import Caller
from speechmill.api.errors import ApiError
from speechmill.api.farm import FarmState
from speechmill.infra.groups import GroupRecord, find_group


async def find_jobs_group(farm: FarmState, caller: Caller, group_id: str) -> GroupRecord:
    """Raises ApiError 404 `job_not_found`, for groups of other projects and for batches too."""
    group = await find_group(farm.client, group_id)
    if group is None or group.project != caller.project or group.kind != "jobs":
        raise ApiError(404, "job_not_found", "there is no such group of jobs")
    return group
