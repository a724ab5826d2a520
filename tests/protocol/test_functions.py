"""How work comes in and is given out: submit, dispatch, claim and the segments that may run ahead."""

from dataclasses import replace

import pytest
from redis.exceptions import OutOfMemoryError

from speechmill.infra.keys import Task
from speechmill.infra.messages import Claim, Heard
from speechmill.infra.protocol import Limits, advance, claim, dispatch, leave, renew, retry, submit

from .farm import CODEC, ENCODE, FAILURE, FINISH, KEEP, LEASE_MS, RECORDING, REQUEST, STORE, TALKER, Farm, submission

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


def age_queue(farm: Farm, job_class: str, count: int = 100) -> None:
    """Have the first tasks wait since long ago."""
    queue = farm.keys.ready(TALKER, job_class)
    entries = farm.server.xrange(queue)
    farm.server.delete(queue)
    for at, (entry, fields) in enumerate(entries):
        rid = f"{at + 1}-0" if at < count else entry
        farm.server.xadd(queue, fields, id=rid)
        farm.server.hset(farm.keys.task(Task.parse(fields[b"t"].decode())), "rid", rid)


# -- claim ------------------------------------------------------------------------------------------------------------


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


# -- segments ---------------------------------------------------------------------------------------------------------

FIVE = ("a", "b", "c", "d", "e")


def claimable(farm: Farm) -> list[Claim]:
    """Take every talker task that there is."""
    taken: list[Claim] = []
    while isinstance(claimed := farm.ask(TALKER, f"w{len(taken)}"), Claim):
        taken.append(claimed)
    return taken


def segments(taken: list[Claim]) -> list[int | None]:
    return [claimed.task.segment for claimed in taken]


def test_so_many_segments_run_ahead_of_the_one_being_joined(farm: Farm) -> None:
    farm.submit(segments=FIVE, ahead=2)
    assert segments(claimable(farm)) == [0, 1, 2]


def test_one_segment_of_a_job_waits_at_a_time(farm: Farm) -> None:
    farm.submit(segments=FIVE)
    assert len(farm.ready(TALKER)) == 1


def test_a_joined_segment_lets_the_next_one_start(farm: Farm) -> None:
    farm.submit(segments=FIVE, ahead=1)
    claimable(farm)
    farm.claim(CODEC)
    finish = farm.claim(FINISH)
    assert farm.run(advance(finish.task, finish.token, 1, 100)) == "ok"
    assert segments(claimable(farm)) == [2]
    assert (farm.record(finish.task.job).joined, farm.record(finish.task.job).samples) == (1, 100)


def test_whoever_holds_tasks_of_a_job_that_somebody_hears_is_told_how_far_it_is(farm: Farm) -> None:
    job = farm.submit(segments=FIVE, live=True)
    for worker in ("w", "idle"):
        farm.server.xadd(farm.keys.inbox(worker), {"poke": ""})
    talker, codec, finish = (farm.claim(pool) for pool in (TALKER, CODEC, FINISH))
    assert talker.heard == codec.heard == finish.heard == Heard(0, 0, None)
    farm.run(advance(finish.task, finish.token, 0, 40))
    farm.run(advance(finish.task, finish.token, 1, 100))
    news = [fields for _, fields in farm.server.xrange(farm.keys.inbox("w"))][1:]
    assert [fields[b"heard"].decode() for fields in news] == [job, job]
    first, second = (Heard.parse(*(fields[name] for name in (b"j", b"s", b"p", b"w"))) for fields in news)
    assert (first.joined, first.samples, second.joined, second.samples) == (0, 40, 1, 100)
    assert first.playing_s is not None
    assert second.playing_s is not None
    assert 0 <= first.playing_s <= second.playing_s < 60
    assert farm.server.xlen(farm.keys.inbox("idle")) == 1
    later = farm.claim(TALKER).heard
    (renewed,) = farm.run(renew(1000, [(codec.task, codec.token, 0)]))
    for told in (later, renewed.heard):
        assert (told.joined, told.samples) == (1, 100)
        assert told.playing_s is not None
        assert told.playing_s >= second.playing_s


def test_how_long_a_listener_stood_still_is_known_of_the_job_and_told_to_whoever_goes_on(farm: Farm) -> None:
    job = farm.submit(segments=FIVE, live=True)
    talker, _, finish = (farm.claim(pool) for pool in (TALKER, CODEC, FINISH))
    farm.run(advance(finish.task, finish.token, 0, 24_000))
    for seconds_ago, samples, stalled_s in ((0.5, 24_000, 0), (11, 24_000, 10), (12, 240_000, 10), (60, 240_000, 50)):
        first_audio = int(farm.server.time()[0] * 1000 - seconds_ago * 1000)
        farm.server.hset(farm.keys.job(job), "first_audio", first_audio)
        farm.run(advance(finish.task, finish.token, 1, samples))
        (renewed,) = farm.run(renew(1000, [(talker.task, talker.token, 0)]))
        assert stalled_s <= renewed.heard.stalled_s < stalled_s + 2
    assert 50 <= farm.claim(TALKER).heard.stalled_s < 52


def test_nobody_is_told_of_a_job_that_nobody_hears(farm: Farm) -> None:
    farm.submit()
    farm.server.xadd(farm.keys.inbox("w"), {"poke": ""})
    finish = [farm.claim(pool) for pool in (TALKER, CODEC, FINISH)][-1]
    farm.run(advance(finish.task, finish.token, 1, 100))
    assert farm.server.xlen(farm.keys.inbox("w")) == 1


def test_what_goes_on_with_a_job_that_is_heard_passes_jobs_that_have_not_begun(farm: Farm) -> None:
    heard = farm.submit(segments=FIVE, live=True)
    first = farm.claim(TALKER)
    farm.submit(live=True)
    farm.submit(segments=FIVE)
    assert farm.ready(TALKER, "ongoing") == [f"{heard}/1/1/talker"]
    assert farm.claim(TALKER).task == replace(first.task, segment=1)
    farm.claim(CODEC)
    finish = farm.claim(FINISH)
    farm.run(advance(finish.task, finish.token, 0, 40))
    assert farm.ready(FINISH, "ongoing") == []
    farm.handback(finish)
    assert farm.ready(FINISH, "ongoing") == [str(finish.task)]
    farm.handback(first)
    assert farm.ready(TALKER, "ongoing") == [str(first.task)], "it plays, so its first segment is awaited as well"


def test_what_is_far_ahead_of_what_is_heard_waits_in_its_class_until_it_is_next(farm: Farm) -> None:
    heard = farm.submit(segments=FIVE, live=True)
    farm.claim(TALKER)
    start = farm.submit(live=True)
    assert farm.claim(TALKER).task.segment == 1
    assert [task.split("/")[0] for task in farm.ready(TALKER)] == [start, heard]
    farm.claim(CODEC)
    farm.claim(CODEC)
    finish = farm.claim(FINISH)
    farm.run(advance(finish.task, finish.token, 0, 40))
    assert farm.ready(TALKER, "ongoing") == []
    farm.run(advance(finish.task, finish.token, 1, 80))
    assert farm.ready(TALKER, "ongoing") == [f"{heard}/1/2/talker"]
    assert farm.ready(TALKER) == [f"{start}/1/0/talker"]
    assert farm.claim(TALKER).task.segment == 2
    assert farm.ready(CODEC, "ongoing") == [f"{heard}/1/2/codec"]


def test_who_waits_for_input_lets_others_pass_although_it_is_heard(farm: Farm) -> None:
    farm.submit(live=True)
    talker, _, finish = (farm.claim(pool) for pool in (TALKER, CODEC, FINISH))
    farm.run(advance(finish.task, finish.token, 0, 40))
    start = farm.submit(live=True)
    farm.handback(talker, parked=True)
    assert farm.ready(TALKER, "ongoing") == []
    assert [farm.claim(TALKER).task.job for _ in range(2)] == [start, talker.task.job]


def test_nothing_is_younger_than_now_although_the_clock_was_set_back(farm: Farm) -> None:
    job = farm.submit(live=True)
    for field in ("created", "first_audio"):
        farm.server.hset(farm.keys.job(job), field, 1 << 50)
    claimed = farm.claim(TALKER)
    assert (claimed.age_s, claimed.heard.playing_s) == (0, 0)


def test_a_job_that_nobody_hears_waits_its_turn_for_every_segment(farm: Farm) -> None:
    farm.submit(segments=FIVE)
    farm.claim(TALKER)
    assert farm.ready(TALKER, "ongoing") == []
    assert len(farm.ready(TALKER)) == 1


def test_an_old_finish_cannot_advance(farm: Farm) -> None:
    farm.submit()
    farm.claim(TALKER)
    farm.claim(CODEC)
    old = farm.claim_lapsed(FINISH)
    farm.reap()
    farm.claim(FINISH)
    assert farm.run(advance(old.task, old.token, 1, 100)) == "fenced"


def test_a_chained_segment_waits_for_the_one_before(farm: Farm) -> None:
    farm.submit(segments=FIVE, order="chained")
    (first,) = claimable(farm)
    farm.write_all(first)
    (second,) = claimable(farm)
    assert second.task.segment == 1


def test_the_first_segment_comes_alone_and_then_the_rest_where_the_card_says_so(farm: Farm) -> None:
    farm.submit(segments=FIVE, order="first_then_rest")
    (first,) = claimable(farm)
    farm.write_all(first)
    assert segments(claimable(farm)) == [1, 2, 3, 4]


def test_nothing_but_a_first_claim_makes_another_segment_wait(farm: Farm) -> None:
    job = farm.submit(segments=FIVE)
    first = farm.claim(TALKER)
    farm.handback(first)
    assert farm.claim(TALKER).task.segment == 1
    again = farm.claim(TALKER)
    assert again.task == first.task
    assert farm.ready(TALKER) == [f"{job}/1/2/talker"]
    farm.commit(again)
    assert farm.ready(TALKER) == [f"{job}/1/2/talker"]


def test_a_segment_that_is_taken_again_does_not_let_more_run_ahead(farm: Farm) -> None:
    farm.submit(segments=FIVE, ahead=1)
    taken = claimable(farm)
    farm.handback(taken[0])
    assert segments(claimable(farm)) == [0]
