"""Deleting a job: its record, its logs, and everything in the store that can be heard of it (speech_api §5.4.5)."""

from speechmill.api.errors import ApiError
from speechmill.api.farm import FarmState
from speechmill.api.jobs.find import read_job
from speechmill.infra.jobs import JobRecord, retirement
from speechmill.infra.keys import Task
from speechmill.infra.listing import delete_job


async def remove_job(farm: FarmState, record: JobRecord) -> None:
    """One that has not ended is cancelled. Raises StoreUnavailable, and ApiError 409 where somebody sent it again."""
    while True:
        tasks = [Task.parse(name.decode()) for name in await farm.client.read_set(farm.client.keys.tasks(record.job))]
        if record.ended:  # the record goes last, so that a failure in between can be repeated
            await farm.in_store(_remove_audio, farm, record)
        answer = await farm.client.run(delete_job(record.job, force=not record.ended))
        seen = await read_job(farm, record.job) if answer == "ended" else None
        if seen is None:
            break
        record = seen  # with a result that was not there before
    if answer == "running":
        raise ApiError(409, "job_not_finished", "the job was sent again meanwhile", job_id=record.job)
    if not record.ended:
        await farm.in_store(_remove_audio, farm, record)
    for call in retirement(tasks, record.stages, 0):
        await farm.client.run(call)
    await farm.client.wait_durable()


def _remove_audio(farm: FarmState, record: JobRecord) -> None:
    """The result, what other claims of the job stored beside it, and what was moved out of its logs."""
    folders = [f"spill/{record.job}/"]
    keys = []
    if record.result is not None:
        keys.append(record.result["key"])
        folders.append(f"{record.result['key'].rsplit('/', 1)[0]}/")
    for folder in folders:
        keys += [found.key for found in farm.objects.list_prefix(folder)]
    farm.objects.delete_many(keys)
