"""The jobs of a group that failed are sent again (speech_api §5.4.5)."""

from speechmill.api.bulk.results import ended_records
from speechmill.api.farm import FarmState
from speechmill.infra.groups import GroupRecord
from speechmill.infra.protocol import retry


async def retry_failed(farm: FarmState, group: GroupRecord) -> int:
    """Answers how many there were."""
    failed = [record.job async for record in ended_records(farm, group, 0) if record.state == "failed"]
    answers = [await farm.client.run(retry(job)) for job in failed]
    return answers.count("ok")
