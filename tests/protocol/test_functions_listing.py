"""A project's jobs as they are found, and what an idempotency key stands for."""

import asyncio

import pytest

from speechmill.infra import replies
from speechmill.infra.client import AsyncClient
from speechmill.infra.embedded import EmbeddedValkey
from speechmill.infra.keys import Keys, new_id
from speechmill.infra.listing import UnknownJob, Wanted, delete_job, list_jobs
from speechmill.infra.protocol import Limits, advance, retry, submit

from .farm import FAILURE, RECORDING, TALKER, Farm, submission


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_rare_jobs_are_found_among_many(farm: Farm, valkey: EmbeddedValkey, order: str) -> None:
    jobs = []
    for number in range(1200):
        rarity = "rare" if number % 400 == 7 else None
        jobs.append(farm.submit(Limits(queue_depth=10_000), custom_id=rarity))

    async def find() -> tuple[list[str], list[str]]:
        client = AsyncClient(valkey.url, valkey.url, Keys(farm.keys.prefix))
        wanted = Wanted(custom_id=("rare",))
        found = await list_jobs(client, "default", wanted, 10, order)  # type: ignore[arg-type]
        behind = await list_jobs(client, "default", wanted, 10, order, found[0])  # type: ignore[arg-type]
        with pytest.raises(UnknownJob):
            await list_jobs(client, "other", wanted, 10, behind=found[0])
        await client.close()
        return found, behind

    found, behind = asyncio.run(find())
    rare = jobs[7::400] if order == "asc" else jobs[7::400][::-1]
    assert (found, behind) == (rare, rare[1:])


def test_jobs_that_the_farm_gave_itself_are_in_no_list(farm: Farm) -> None:
    farm.submit(**RECORDING)
    assert farm.server.zcard(f"{farm.keys.root}:jobs:default") == 0


def test_what_has_not_ended_is_deleted_by_force_only_and_nothing_of_it_is_left(farm: Farm) -> None:
    job = farm.submit(asked="{}", notify=True)
    farm.claim(TALKER)
    assert farm.run(delete_job(job, force=False)) == "running"
    assert farm.run(delete_job(job, force=True)) == "ok"
    assert farm.run(delete_job(job, force=True)) == "unknown"
    ended = farm.submit()
    farm.end_job(ended, "cancelled")
    assert farm.run(delete_job(ended, force=True)) == "ended"  # what is to be removed with it must be looked up first
    assert farm.run(delete_job(ended, force=False)) == "ok"
    assert list(farm.server.scan_iter(f"*{job}*")) == []
    assert farm.server.xlen(farm.keys.outbox()) == 1


def test_the_first_audio_and_every_failed_try_are_news(farm: Farm) -> None:
    job = farm.submit(max_attempts=3)
    farm.claim_lapsed(TALKER)
    before = farm.record(job)
    farm.reap()
    tried = farm.record(job)
    assert (before.attempt, tried.attempt) == (1, 2)
    assert tried.version > before.version
    for pool in (TALKER, "toy/codec"):
        farm.claim(pool)
    finish = farm.claim("farm/finish")
    farm.run(advance(finish.task, finish.token, 0, 0))
    assert farm.record(job).first_audio == 0
    farm.run(advance(finish.task, finish.token, 0, 100))
    first = farm.record(job).first_audio
    farm.run(advance(finish.task, finish.token, 1, 200))
    assert farm.record(job).first_audio == first > 0
    farm.end_job(job, "failed", FAILURE)
    farm.run(retry(job))
    assert (farm.record(job).first_audio, farm.record(job).attempt) == (0, 1)


@pytest.mark.parametrize(("state", "stands"), [("failed", False), ("expired", False), ("running", True)])
def test_a_key_stands_for_a_job_that_did_not_fail(farm: Farm, state: str, stands: bool) -> None:
    job = farm.submit(idempotency_key="k")
    if state == "running":
        farm.claim(TALKER)
    else:
        farm.end_job(job, state, FAILURE)
    again = farm.run(submit(submission(job=new_id("job"), idempotency_key="k"), Limits()))
    assert (again.answer == "exists") is stands


def test_a_reply_belongs_to_its_holder_and_to_one_body(farm: Farm) -> None:
    def begin(digest: str, holder: str) -> str:
        return str(farm.run(replies.begin_reply("s", digest, holder, 60)).verdict)

    assert [begin("d", "a"), begin("d", "a"), begin("d", "b"), begin("x", "b")] == ["new", "new", "running", "reused"]
    for call in (
        replies.hold_reply("s", "b", 60),
        replies.put_reply("s", "b", b"{}", 60),
        replies.drop_reply("s", "b"),
    ):
        assert farm.run(call) == "lost"
    assert farm.run(replies.put_reply("s", "a", b"{}", 60)) == "ok"
    assert farm.run(replies.begin_reply("s", "d", "b", 60)) == replies.Begun("done", b"{}")
    assert farm.run(replies.drop_reply("s", "a")) == "ok"
    assert begin("x", "b") == "new"
