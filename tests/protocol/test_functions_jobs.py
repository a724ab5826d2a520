"""How jobs end and begin again, and what they leave behind."""

import pytest

from speechmill.infra import jobs
from speechmill.infra.keys import out_log
from speechmill.infra.messages import Claim
from speechmill.infra.protocol import advance, claim, follow, leave, retry

from .farm import CODEC, FAILURE, FINISH, LEASE_MS, STORE, TALKER, TTL_S, Farm

RESULT = '{"key": "audio/x"}'


def started(farm: Farm, job: str) -> list[Claim]:
    """A job with an owner for each of its first three tasks."""
    claims = [farm.claim(pool) for pool in (TALKER, CODEC, FINISH)]
    assert {claimed.task.job for claimed in claims} == {job}
    return claims


# -- end_job ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["failed", "cancelled", "expired"])
def test_a_job_that_nobody_is_at_ends_at_once(farm: Farm, state: str) -> None:
    job = farm.submit()
    assert farm.end_job(job, state) == state
    assert farm.state(job) == state


@pytest.mark.parametrize("state", ["failed", "expired"])
def test_a_failure_ends_the_job_at_once_whoever_is_at_it(farm: Farm, state: str) -> None:
    job = farm.submit()
    claims = started(farm, job)
    assert farm.end_job(job, state, FAILURE) == state
    assert [farm.renew(claimed) for claimed in claims] == ["closed"] * 3


def test_a_cancelled_job_waits_for_its_owners_to_let_go(farm: Farm) -> None:
    job = farm.submit()
    claims = started(farm, job)
    assert farm.end_job(job, "cancelled") == "cancelling"
    states = []
    for claimed in claims:
        assert farm.handback(claimed) == "closed"
        states.append(farm.state(job))
    assert states == ["cancelling", "cancelling", "cancelled"]


def test_a_cancelled_job_does_not_wait_for_the_dead(farm: Farm) -> None:
    job = farm.submit()
    farm.claim_lapsed(TALKER)
    farm.end_job(job, "cancelled")
    farm.reap()
    assert farm.state(job) == "cancelled"


def test_a_claim_whose_answer_was_lost_does_not_hold_up_a_cancel(farm: Farm) -> None:
    job = farm.submit()
    command = claim(TALKER, "w", "nonce", LEASE_MS, 0)
    farm.run(command)
    farm.end_job(job, "cancelled")
    claimed = farm.run(command)
    assert farm.renew(claimed) == "closed"
    farm.handback(claimed)
    assert farm.state(job) == "cancelled"


def test_a_deadline_ends_what_is_still_being_cancelled(farm: Farm) -> None:
    job = farm.submit()
    farm.claim(TALKER)
    farm.end_job(job, "cancelled")
    assert farm.end_job(job, "expired", FAILURE) == "cancelled"
    assert farm.record(job).error is None


def test_waiting_tasks_of_an_ended_job_leave_their_queues(farm: Farm) -> None:
    job = farm.submit(segments=("a", "b"))
    farm.claim(TALKER)
    assert (len(farm.ready(TALKER)), len(farm.ready(CODEC))) == (1, 1)
    farm.end_job(job, "cancelled")
    assert (farm.ready(TALKER), farm.ready(CODEC)) == ([], [])


def test_a_task_handed_back_to_a_cancelled_job_does_not_wait_again(farm: Farm) -> None:
    job = farm.submit()
    claimed = farm.claim(TALKER)
    farm.end_job(job, "cancelled")
    farm.handback(claimed)
    assert farm.ready(TALKER) == []


def test_owners_are_told_in_their_inbox(farm: Farm) -> None:
    job = farm.submit()
    farm.server.xadd(farm.keys.inbox("w"), {"poke": "1"})
    claimed = farm.claim(TALKER)
    farm.end_job(job, "cancelled")
    (news,) = [fields for _, fields in farm.server.xrange(farm.keys.inbox("w")) if b"closed" in fields]
    assert news[b"closed"].decode() == str(claimed.task)
    farm.handback(claimed)


def test_the_first_end_counts(farm: Farm) -> None:
    job = farm.submit(notify=True)
    farm.end_job(job, "failed", FAILURE)
    assert farm.end_job(job, "cancelled") == "failed"
    assert farm.server.xlen(farm.keys.outbox()) == 1


def test_a_job_that_succeeded_cannot_be_cancelled(farm: Farm) -> None:
    job = farm.submit()
    farm.finish_all(job)
    assert farm.end_job(job, "cancelled") == "succeeded"


def test_an_unknown_job_cannot_be_ended(farm: Farm) -> None:
    assert farm.end_job("job_unknown", "cancelled") == "unknown"


def test_a_listener_of_an_ended_job_hears_why(farm: Farm) -> None:
    job = farm.submit()
    jobs.end(farm.client, job, "failed", FAILURE, TTL_S)
    assert b"it went wrong" in farm.run(follow(out_log(job, 1), "r", TTL_S)).trailer


# -- retry ------------------------------------------------------------------------------------------------------------


def retried(farm: Farm, job: str) -> None:
    assert farm.run(retry(job)) == "ok"


def test_a_failed_job_can_be_spoken_again_in_a_new_take(farm: Farm) -> None:
    job = farm.submit(max_attempts=1)
    farm.handback(farm.claim(TALKER), FAILURE)
    retried(farm, job)
    assert farm.ready(TALKER) == [f"{job}/2/0/talker"]
    record = farm.record(job)
    assert (record.state, record.take, record.error, record.dead_task) == ("queued", 2, None, "")
    assert farm.server.zscore(farm.keys.dead(), job) is None
    farm.finish_all(job)
    assert farm.state(job) == "succeeded"


def test_a_new_take_lives_as_long_as_it_needs(farm: Farm) -> None:
    job = farm.submit()
    farm.end_job(job, "cancelled")
    retried(farm, job)
    assert farm.server.ttl(farm.keys.job(job)) == farm.server.ttl(farm.keys.segments(job)) == -1


@pytest.mark.parametrize("state", ["queued", "running", "succeeded"])
def test_a_job_that_has_not_failed_is_not_retried(farm: Farm, state: str) -> None:
    job = farm.submit()
    if state == "running":
        farm.claim(TALKER)
    elif state == "succeeded":
        farm.finish_all(job)
    assert farm.run(retry(job)) == state
    assert farm.run(retry("job_unknown")) == "unknown"


def test_owners_of_an_earlier_take_have_no_say_in_the_new_one(farm: Farm) -> None:
    job = farm.submit()
    talker, codec, finish = started(farm, job)
    farm.end_job(job, "failed", FAILURE)
    retried(farm, job)
    assert [farm.renew(old) for old in (talker, codec, finish)] == ["closed"] * 3
    assert farm.commit(talker) == "closed"
    assert farm.run(advance(finish.task, finish.token, 1, 100)) == "closed"
    assert farm.reopen(codec) == "closed"
    assert farm.handback(codec) == "closed"
    assert (farm.record(job).state, farm.record(job).joined) == ("queued", 0)


def test_the_store_of_an_earlier_take_cannot_end_the_new_one(farm: Farm) -> None:
    job = farm.submit()
    started(farm, job)
    store = farm.claim(STORE)
    farm.end_job(job, "failed", FAILURE)
    retried(farm, job)
    assert farm.commit(store, RESULT) == "closed"
    assert farm.state(job) == "queued"


def test_tasks_of_an_earlier_take_do_not_come_back(farm: Farm) -> None:
    job = farm.submit()
    farm.claim_lapsed(TALKER)
    farm.end_job(job, "expired")
    retried(farm, job)
    farm.reap()
    assert farm.ready(TALKER) == [f"{job}/2/0/talker"]


def test_settling_the_old_take_late_does_not_touch_the_new_one(farm: Farm) -> None:
    job = farm.submit()
    farm.end_job(job, "cancelled")
    old = farm.record(job)
    retried(farm, job)
    writer = farm.writer(farm.claim(TALKER))
    writer.append(b"ab")
    farm.client.run_all(jobs.aftermath(old, jobs.read_tasks(farm.client, job), "{}", 5))
    assert farm.server.ttl(farm.keys.log(writer.log)) > 5


# -- what is left -----------------------------------------------------------------------------------------------------


def test_records_live_until_the_job_ends(farm: Farm) -> None:
    job = farm.submit()
    farm.claim(TALKER)
    for name in (farm.keys.job(job), farm.keys.segments(job), farm.keys.tasks(job)):
        assert farm.server.ttl(name) == -1


@pytest.mark.parametrize("how", ["succeeded", "failed", "cancelled", "expired"])
@pytest.mark.parametrize("settled", [True, False])
def test_nothing_of_an_ended_job_stays_for_ever(farm: Farm, how: str, settled: bool) -> None:
    job = farm.submit(segments=("a", "b"), retention_s=100)
    for claimed in started(farm, job):
        farm.writer(claimed).append(b"abcd")
        farm.run(follow(farm.log(claimed), "r", TTL_S))
    store = farm.claim(STORE)
    if how == "succeeded":
        farm.commit(store, RESULT)
    else:
        farm.end_job(job, how, FAILURE)
        for owned in farm.server.smembers(f"{farm.keys.root}:owned:{job}"):
            farm.server.zadd(f"{farm.keys.root}:leases", {owned: 1})
        farm.reap()
    if settled:
        jobs.settle(farm.client, job, 50)
    assert farm.state(job) == how
    farm.assert_gone_in_time(job)


def test_logs_of_an_ended_job_go_before_its_record(farm: Farm) -> None:
    job = farm.submit(retention_s=500)
    for claimed in started(farm, job):
        farm.writer(claimed).append(b"ab")
    jobs.end(farm.client, job, "failed", FAILURE, 50)
    assert all(0 < farm.server.ttl(name) <= 50 for name in farm.names(f"log:{job}*"))
    assert farm.server.ttl(farm.keys.job(job)) > 50


def test_what_is_known_of_a_worker_goes_with_it(farm: Farm) -> None:
    farm.submit()
    farm.claim(TALKER)
    assert 0 < farm.server.ttl(farm.keys.worker("w")) <= 60
    farm.serve(TALKER, 4)
    farm.run(leave("w", [TALKER]))
    assert not farm.server.exists(farm.keys.worker("w"), farm.keys.workers(TALKER), f"{farm.keys.root}:slots:{TALKER}")
