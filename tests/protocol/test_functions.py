"""How work comes in and waits: submit, dispatch, and classes that are served by weight."""

import pytest
from redis.exceptions import OutOfMemoryError

from speechmill.infra.messages import Claim
from speechmill.infra.protocol import Limits, advance, claim, dispatch, leave, retry, submit

from .farm import CODEC, ENCODE, FINISH, LEASE_MS, RECORDING, REQUEST, TALKER, Farm, age_queue, submission

ROUND = 12
"""Weights 8, 3 and 1."""


# -- submit -----------------------------------------------------------------------------------------------------------


def test_an_accepted_job_is_queued_with_its_record_and_its_first_task(farm: Farm) -> None:
    job = farm.submit(segments=("one", "two"), project="p", job_class="batch")
    record = farm.record(job)
    assert (record.state, record.take, record.segments, record.project) == ("queued", 1, 2, "p")
    assert record.request == REQUEST
    assert farm.ready(TALKER, "batch") == [f"{job}/1/0/talker"]


def test_a_refused_job_leaves_nothing_behind(farm: Farm) -> None:
    refused = submission(idempotency_key="once")
    assert farm.run(submit(refused, Limits(queue_depth=0))).answer == "full"
    assert not farm.names(f"*{refused.job}*")
    assert not farm.names("idem:*")


def test_a_repeated_submission_is_accepted_once(farm: Farm) -> None:
    job = submission()
    answers = [farm.run(submit(job, Limits())) for _ in range(2)]
    assert [(answer.answer, answer.job) for answer in answers] == [("ok", job.job)] * 2
    assert farm.ready(TALKER) == [f"{job.job}/1/0/talker"]


def test_a_key_that_was_used_before_answers_the_earlier_job(farm: Farm) -> None:
    job = farm.submit(idempotency_key="once")
    again = farm.run(submit(submission(idempotency_key="once"), Limits()))
    assert (again.answer, again.job) == ("exists", job)


def test_an_idempotency_key_is_forgotten_in_time(farm: Farm) -> None:
    farm.submit(Limits(idempotency_s=60), idempotency_key="once")
    (key,) = farm.names("idem:*")
    assert 0 < farm.server.ttl(key) <= 60


@pytest.mark.parametrize("state", ["succeeded", "failed", "cancelled", "expired"])
def test_a_key_may_stand_for_a_job_only_while_it_is_in_work(farm: Farm, state: str) -> None:
    limits = Limits(idempotency_s=0)
    job = farm.submit(limits, idempotency_key="once")
    assert farm.run(submit(submission(idempotency_key="once"), limits)).job == job
    if state == "succeeded":
        farm.finish_all(job)
    else:
        farm.end_job(job, state)
    assert farm.state(job) == state
    assert farm.submit(limits, idempotency_key="once") != job


def test_a_key_is_not_taken_from_the_job_that_has_it_now_when_an_earlier_one_ends_again(farm: Farm) -> None:
    limits = Limits(idempotency_s=0)
    earlier = farm.submit(limits, idempotency_key="once")
    farm.end_job(earlier, "failed")
    job = farm.submit(limits, idempotency_key="once")
    assert farm.run(retry(earlier)) == "ok"
    farm.end_job(earlier, "failed")
    assert farm.run(submit(submission(idempotency_key="once"), limits)).job == job


def test_a_key_of_a_job_in_work_is_gone_by_the_job_s_deadline(farm: Farm) -> None:
    farm.submit(Limits(idempotency_s=0), idempotency_key="once", timeout_s=60)
    (key,) = farm.names("idem:*")
    assert 0 < farm.server.ttl(key) <= 60


def test_a_full_queue_refuses_and_tells_its_depth(farm: Farm) -> None:
    farm.submit()
    answer = farm.run(submit(submission(), Limits(queue_depth=1)))
    assert (answer.answer, answer.depth) == ("full", 1)


def test_a_job_that_is_being_worked_on_does_not_count_as_queued(farm: Farm) -> None:
    farm.submit()
    farm.claim(TALKER)
    farm.submit(Limits(queue_depth=1))


def test_a_project_beyond_its_quota_is_refused_and_others_are_not(farm: Farm) -> None:
    limits = Limits(project_jobs=1)
    farm.submit(limits, project="a")
    assert farm.run(submit(submission(project="a"), limits)).answer == "quota"
    farm.submit(limits, project="b")


def test_an_ended_job_frees_its_project_s_quota(farm: Farm) -> None:
    job = farm.submit(project="a")
    farm.end_job(job, "cancelled")
    farm.submit(Limits(project_jobs=1), project="a")


def test_what_the_farm_does_for_many_is_not_counted_against_a_project(farm: Farm) -> None:
    errand = farm.submit(project="a", counted=False)
    farm.submit(Limits(project_jobs=1), project="a")
    farm.end_job(errand, "cancelled")
    assert farm.run(submit(submission(project="a"), Limits(project_jobs=1))).answer == "quota"


def test_full_memory_refuses_new_work_and_lets_running_work_end(farm: Farm) -> None:
    job = farm.submit()
    talker = farm.claim(TALKER)
    before = farm.server.config_get("maxmemory")["maxmemory"]
    farm.server.config_set("maxmemory", 1)
    try:
        with pytest.raises(OutOfMemoryError):
            farm.run(submit(submission(), Limits()))
        farm.write_all(talker)
        assert farm.state(job) == "running"
    finally:
        farm.server.config_set("maxmemory", before)


# -- dispatch ---------------------------------------------------------------------------------------------------------


def test_the_ready_queue_holds_twice_the_slots_of_the_live_workers(farm: Farm) -> None:
    farm.serve(TALKER, 3)
    for _ in range(10):
        farm.submit()
    assert len(farm.ready(TALKER)) == 6


def test_without_workers_a_few_tasks_wait_all_the_same(farm: Farm) -> None:
    for _ in range(10):
        farm.submit()
    assert len(farm.ready(TALKER)) == 2


def test_slots_of_a_worker_that_left_do_not_count(farm: Farm) -> None:
    farm.serve(TALKER, 3)
    farm.run(leave("w", [TALKER]))
    for _ in range(10):
        farm.submit()
    assert len(farm.ready(TALKER)) == 2


def test_a_claim_refills_the_queue(farm: Farm) -> None:
    for _ in range(4):
        farm.submit()
    farm.claim(TALKER)
    farm.run(dispatch("toy", "interactive", "talker"))
    assert len(farm.ready(TALKER)) == 2


def test_workers_of_later_stages_do_not_lengthen_the_first_queue(farm: Farm) -> None:
    farm.serve(CODEC, 50, "c")
    for _ in range(10):
        farm.submit()
    assert farm.ask(CODEC) == "none"
    assert len(farm.ready(TALKER)) == 2


def test_recordings_that_nobody_encodes_do_not_hold_up_speech(farm: Farm) -> None:
    for _ in range(4):
        farm.submit(**RECORDING)
    job = farm.submit()
    assert farm.claim(TALKER).task.job == job


def test_speech_that_nobody_makes_does_not_hold_up_recordings(farm: Farm) -> None:
    for _ in range(4):
        farm.submit()
    job = farm.submit(**RECORDING)
    assert farm.claim(ENCODE).task.job == job


def test_projects_take_turns_however_many_jobs_one_has(farm: Farm) -> None:
    crowd = [farm.submit(project="crowd") for _ in range(6)]
    lone = [farm.submit(project="lone") for _ in range(2)]
    served = [farm.claim(TALKER, f"w{k}").task.job for k in range(6)]
    assert served.index(lone[0]) <= 3
    assert served.index(lone[1]) <= 5
    assert [job for job in served if job in crowd] == crowd[:4]


def test_a_project_that_comes_back_is_not_served_before_those_that_waited(farm: Farm) -> None:
    for _ in range(8):
        farm.submit(project="b")
    served = []
    for turn in range(6):
        farm.submit(project="a")
        served.append(farm.record(farm.claim(TALKER, f"w{turn}").task.job).project)
    assert 2 <= served.count("b") <= 4


def test_a_cancelled_job_leaves_the_backlog_at_once(farm: Farm) -> None:
    jobs = [farm.submit() for _ in range(3)]
    farm.end_job(jobs[2], "cancelled")
    farm.assert_gone_in_time(jobs[2])


# -- classes ----------------------------------------------------------------------------------------------------------


def served_classes(farm: Farm, count: int) -> list[str]:
    return [farm.claim(TALKER, f"w{k}").job_class for k in range(count)]


def test_classes_are_served_by_weight(farm: Farm) -> None:
    farm.serve(TALKER, 20)
    for job_class in ("interactive", "normal", "batch"):
        for _ in range(2 * ROUND):
            farm.submit(job_class=job_class)
    served = served_classes(farm, 2 * ROUND)
    counts = {name: served.count(name) for name in ("interactive", "normal", "batch")}
    assert counts == {"interactive": 16, "normal": 6, "batch": 2}


def test_a_class_that_was_idle_does_not_catch_up(farm: Farm) -> None:
    farm.serve(TALKER, 40)
    for _ in range(40):
        farm.submit(job_class="interactive")
    served_classes(farm, ROUND)
    for _ in range(ROUND):
        farm.submit(job_class="batch")
    assert served_classes(farm, ROUND).count("batch") <= 2


def test_one_class_alone_can_be_claimed(farm: Farm) -> None:
    for job_class in ("batch", "interactive"):
        farm.submit(job_class=job_class)
    age_queue(farm, "batch")
    answers = [farm.run(claim(TALKER, "w", f"n{k}", LEASE_MS, 0, "interactive")) for k in range(2)]
    assert [answer if isinstance(answer, str) else answer.job_class for answer in answers] == ["interactive", "none"]


def test_while_beginnings_are_held_back_all_else_is_claimed_class_by_class(farm: Farm) -> None:
    farm.serve(TALKER, 20)
    playing = farm.submit(segments=("one", "two"), live=True)
    talker, _, finish = (farm.claim(pool) for pool in (TALKER, CODEC, FINISH))
    farm.run(advance(finish.task, finish.token, 0, 40))
    starts = [farm.submit(live=True, job_class=job_class) for job_class in ("interactive", "normal", "batch")]
    others = [farm.submit(job_class=job_class) for job_class in ("interactive", "normal", "batch")]
    claimed = [farm.ask(TALKER, only="unheard") for _ in range(5)]
    jobs = [answer if isinstance(answer, str) else answer.task.job for answer in claimed]
    assert (jobs[0], sorted(jobs[1:4]), jobs[4]) == (playing, sorted(others), "none")
    farm.handback(talker, parked=True)
    assert farm.ask(TALKER, only="ongoing") == "none"
    again = farm.ask(TALKER, only="unheard")
    assert isinstance(again, Claim)
    assert again.task == talker.task, "it plays, and is no beginning"
    assert sorted(farm.claim(TALKER).task.job for _ in starts) == sorted(starts)


def test_a_task_that_has_waited_long_goes_first(farm: Farm) -> None:
    for job_class in ("batch", "interactive"):
        farm.submit(job_class=job_class)
    age_queue(farm, "batch")
    assert served_classes(farm, 2) == ["batch", "interactive"]


def test_an_aged_task_gives_its_class_no_right_to_more(farm: Farm) -> None:
    farm.serve(TALKER, 80)
    for job_class in ("interactive", "batch"):
        for _ in range(40):
            farm.submit(job_class=job_class)
    served_classes(farm, 18)
    age_queue(farm, "batch", 1)
    assert served_classes(farm, 1) == ["batch"]
    assert served_classes(farm, 9).count("batch") <= 1
