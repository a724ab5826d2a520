"""How work is given out: what a claim answers, whose it is, and who must wait."""

import pytest

from speechmill.infra.keys import Task
from speechmill.infra.messages import Claim
from speechmill.infra.protocol import advance, claim

from .farm import CODEC, ENCODE, FAILURE, FINISH, KEEP, LEASE_MS, RECORDING, REQUEST, STORE, TALKER, Farm, age_queue


def test_a_claim_answers_all_that_the_worker_needs(farm: Farm) -> None:
    job = farm.submit(segments=("one", "two"), live=True, timeout_s=60, retention_s=100)
    claimed = farm.claim(TALKER)
    assert claimed.task == Task(job, 1, 0, "talker")
    assert (claimed.text, claimed.model, claimed.stages, claimed.segments) == ("one", "toy", ("talker", "codec"), 2)
    assert (claimed.request, claimed.live, claimed.solo, claimed.attempts, claimed.base) == (
        REQUEST,
        True,
        False,
        0,
        -1,
    )
    assert 150 <= claimed.ttl_s <= 161


def test_the_first_claim_starts_the_job(farm: Farm) -> None:
    job = farm.submit()
    farm.claim(TALKER)
    assert farm.state(job) == "running"


def test_every_claim_of_a_task_has_a_token_that_is_newer(farm: Farm) -> None:
    farm.submit()
    first = farm.claim(TALKER)
    farm.handback(first)
    second = farm.claim(TALKER)
    assert [int(claimed.token.split(":")[0]) for claimed in (first, second)] == [1, 2]


def test_a_claimed_task_is_nobody_else_s(farm: Farm) -> None:
    farm.submit()
    farm.claim(TALKER)
    assert farm.ask(TALKER, "other") == "none"


@pytest.mark.parametrize(("pool", "follower"), [(TALKER, CODEC), (CODEC, FINISH), (FINISH, STORE)])
def test_a_claim_makes_the_successor_ready(farm: Farm, pool: str, follower: str) -> None:
    farm.submit()
    for before in (TALKER, CODEC, FINISH)[: (TALKER, CODEC, FINISH).index(pool)]:
        farm.claim(before)
    assert farm.ready(follower) == []
    farm.claim(pool)
    assert len(farm.ready(follower)) == 1


def test_a_job_goes_through_a_tail_of_its_own_which_ends_it(farm: Farm) -> None:
    job = farm.submit(**RECORDING)
    encode = farm.claim(ENCODE)
    assert (farm.ready(FINISH), farm.ready(KEEP)) == ([], [f"{job}/1/j/keep"])
    farm.write_all(encode)
    assert farm.commit(farm.claim(KEEP), '{"key": "features/x"}') == "ok"
    assert (farm.state(job), farm.record(job).result) == ("succeeded", {"key": "features/x"})
    farm.assert_gone_in_time(job)


def test_a_job_has_one_finish_however_many_segments(farm: Farm) -> None:
    farm.submit(segments=("a", "b", "c"))
    for pool in (TALKER, CODEC):
        for k in range(3):
            farm.claim(pool, f"w{k}")
    assert len(farm.ready(FINISH)) == 1


def test_a_repeated_claim_gets_the_same_answer(farm: Farm) -> None:
    farm.submit()
    farm.submit()
    command = claim(TALKER, "w", "nonce", LEASE_MS, 0)
    first = farm.run(command)
    again = farm.run(command)
    assert isinstance(first, Claim)
    assert (again.task, again.token) == (first.task, first.token)


def test_a_repeated_claim_answers_nothing_once_the_lease_has_lapsed(farm: Farm) -> None:
    farm.submit()
    command = claim(TALKER, "w", "nonce", 0, 0)
    farm.run(command)
    farm.reap()
    assert farm.run(command) == "none"
    farm.claim(TALKER, "other")
    assert farm.run(command) == "none"


def test_a_repeated_claim_answers_nothing_once_the_job_is_over(farm: Farm) -> None:
    job = farm.submit()
    command = claim(TALKER, "w", "nonce", LEASE_MS, 0)
    farm.run(command)
    farm.end_job(job, "failed", FAILURE)
    assert farm.run(command) == "none"


def test_entries_of_a_closed_job_are_skipped(farm: Farm) -> None:
    closed, open_job = farm.submit(), farm.submit()
    farm.server.hset(farm.keys.job(closed), "state", "cancelling")  # and its entry still stands in the queue
    assert farm.claim(TALKER).task.job == open_job
    farm.server.hset(farm.keys.job(closed), "state", "queued")


def test_tasks_with_a_newer_payload_wait_for_a_worker_that_knows_it(farm: Farm) -> None:
    newer, known = farm.submit(), farm.submit(job_class="batch")
    queue = farm.keys.ready(TALKER, "interactive")
    farm.server.delete(queue)
    for _ in range(20):
        farm.server.xadd(queue, {"t": f"{newer}/1/0/talker", "v": 99})
    assert farm.claim(TALKER).task.job == known
    assert len(farm.ready(TALKER)) == 20


def test_a_known_payload_is_found_behind_many_newer_ones(farm: Farm) -> None:
    farm.serve(TALKER, 50)
    newer = farm.submit()
    for _ in range(40):
        farm.server.xadd(farm.keys.ready(TALKER, "interactive"), {"t": f"{newer}/1/0/talker", "v": 99})
    farm.claim(TALKER)
    known = farm.submit()
    farm.server.hset(farm.keys.task(Task(newer, 1, 0, "talker")), "state", "ready")  # or its entries count as stale
    assert farm.claim(TALKER, "other").task.job == known
    farm.server.hset(farm.keys.task(Task(newer, 1, 0, "talker")), "state", "leased")


def test_a_suspect_waits_until_the_batch_is_empty(farm: Farm) -> None:
    farm.submit()
    farm.handback(farm.claim(TALKER), FAILURE)
    assert farm.ask(TALKER, open_slots=1) == "alone"
    assert farm.claim(TALKER).solo


def test_a_suspect_that_is_heard_keeps_others_waiting_only_when_it_has_waited_long_itself(farm: Farm) -> None:
    def heard() -> Claim:
        farm.submit(live=True)
        talker, _, finish = (farm.claim(pool) for pool in (TALKER, CODEC, FINISH))
        farm.run(advance(finish.task, finish.token, 0, 40))
        return talker

    suspect, drained = heard(), heard()
    farm.handback(suspect, FAILURE)
    farm.handback(drained)
    start = farm.submit(live=True)
    assert farm.ready(TALKER, "ongoing") == [str(suspect.task), str(drained.task)]
    assert [farm.claim(TALKER, open_slots=1).task.job for _ in range(2)] == [drained.task.job, start]
    assert farm.ask(TALKER, open_slots=1) == "none"
    farm.submit(live=True)
    age_queue(farm, "ongoing")
    assert farm.ask(TALKER, open_slots=1) == "alone"
    assert farm.claim(TALKER).solo
