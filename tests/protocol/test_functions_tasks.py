"""How tasks pass from hand to hand: renew, handback, commit, reopen, reap."""

import pytest

from speechmill.infra.messages import Claim
from speechmill.infra.protocol import renew

from .farm import CODEC, FAILURE, FINISH, LEASE_MS, STORE, TALKER, TTL_S, Farm

RESULT = '{"key": "audio/x"}'


def taken_over(farm: Farm) -> tuple[Claim, Claim]:
    """A talker task whose lease lapsed, and the claim that followed."""
    farm.submit()
    old = farm.claim_lapsed(TALKER)
    farm.reap()
    return old, farm.claim(TALKER, "successor")


# -- renew ------------------------------------------------------------------------------------------------------------


def test_renewing_keeps_the_task(farm: Farm) -> None:
    farm.submit()
    claimed = farm.claim_lapsed(TALKER)
    assert farm.renew(claimed) == "ok"
    farm.reap()
    assert farm.task(claimed)["state"] == "leased"


def test_an_owner_hears_that_somebody_else_has_the_task(farm: Farm) -> None:
    old, new = taken_over(farm)
    assert (farm.renew(old), farm.renew(new)) == ("fenced", "ok")


def test_a_lapsed_lease_cannot_be_renewed_once_it_was_reaped(farm: Farm) -> None:
    farm.submit()
    claimed = farm.claim_lapsed(TALKER)
    farm.reap()
    assert farm.renew(claimed) == "fenced"
    assert farm.task(claimed)["state"] == "ready"


def test_an_idle_owner_hears_that_the_job_is_over(farm: Farm) -> None:
    job = farm.submit()
    claimed = farm.claim(TALKER)
    farm.end_job(job, "cancelled")
    assert farm.renew(claimed) == "closed"


def test_renewing_many_answers_for_each_and_tells_what_is_joined(farm: Farm) -> None:
    old, new = taken_over(farm)
    answers = farm.run(renew(LEASE_MS, [(old.task, old.token, 0), (new.task, new.token, 0)]))
    assert [(answer.verdict, answer.heard.joined) for answer in answers] == [("fenced", 0), ("ok", 0)]


# -- handback ---------------------------------------------------------------------------------------------------------


def test_a_drained_task_is_ready_again_and_no_attempt_counts(farm: Farm) -> None:
    farm.submit()
    assert farm.handback(farm.claim(TALKER)) == "ok"
    again = farm.claim(TALKER)
    assert (again.attempts, again.solo) == (0, False)


def test_a_failed_try_counts_and_the_next_runs_alone(farm: Farm) -> None:
    farm.submit()
    assert farm.handback(farm.claim(TALKER), FAILURE) == "ok"
    again = farm.claim(TALKER)
    assert (again.attempts, again.solo) == (1, True)


def test_the_last_try_fails_the_job_and_leaves_a_dead_letter(farm: Farm) -> None:
    job = farm.submit(max_attempts=2)
    assert farm.handback(farm.claim(TALKER), FAILURE) == "ok"
    assert farm.handback(farm.claim(TALKER), FAILURE) == "failed"
    record = farm.record(job)
    assert (record.state, record.error, record.dead_task) == (
        "failed",
        {"code": "generation_failed", "message": "it went wrong"},
        f"{job}/1/0/talker",
    )
    assert farm.server.zscore(farm.keys.dead(), job)


def test_a_dead_letter_is_kept_longer_than_other_ended_jobs(farm: Farm) -> None:
    job = farm.submit(max_attempts=1, retention_s=60)
    farm.handback(farm.claim(TALKER), FAILURE)
    assert farm.server.ttl(farm.keys.job(job)) > 86_400
    assert farm.server.ttl(farm.keys.segments(job)) > 86_400


def test_a_repeated_handback_changes_nothing(farm: Farm) -> None:
    farm.submit()
    claimed = farm.claim(TALKER)
    farm.handback(claimed, FAILURE)
    assert farm.handback(claimed, FAILURE) == "fenced"
    assert farm.claim(TALKER).attempts == 1


def test_an_old_owner_cannot_hand_back(farm: Farm) -> None:
    old, new = taken_over(farm)
    assert farm.handback(old) == "fenced"
    assert farm.renew(new) == "ok"


# -- commit -----------------------------------------------------------------------------------------------------------


def test_a_committed_task_is_done_and_nobody_s(farm: Farm) -> None:
    farm.submit()
    claimed = farm.claim(TALKER)
    assert farm.commit(claimed) == "ok"
    assert farm.task(claimed)["state"] == "done"
    assert farm.ask(TALKER) == "none"


def test_a_commit_may_be_repeated(farm: Farm) -> None:
    farm.submit()
    claimed = farm.claim(TALKER)
    assert [farm.commit(claimed), farm.commit(claimed)] == ["ok", "ok"]


def test_an_old_owner_cannot_commit(farm: Farm) -> None:
    old, new = taken_over(farm)
    assert farm.commit(old) == "fenced"
    assert farm.commit(new) == "ok"


def test_a_lapsed_owner_cannot_commit_before_the_next_claim_either(farm: Farm) -> None:
    farm.submit()
    claimed = farm.claim_lapsed(TALKER)
    farm.reap()
    assert farm.commit(claimed) == "fenced"


def test_nothing_of_a_closed_job_can_be_committed(farm: Farm) -> None:
    job = farm.submit()
    claimed = farm.claim(TALKER)
    farm.end_job(job, "cancelled")
    assert farm.commit(claimed) == "closed"
    assert farm.handback(claimed) == "closed"


def test_the_store_s_commit_installs_result_state_and_event_in_one_step(farm: Farm) -> None:
    job = farm.submit(notify=True)
    farm.finish_all(job)
    record = farm.record(job)
    assert (record.state, record.result) == ("succeeded", {"key": "audio/x"})
    events = [fields for _, fields in farm.server.xrange(farm.keys.outbox())]
    assert events == [{b"type": b"audio.job.succeeded", b"job": job.encode(), b"project": b"default"}]


def test_a_repeated_result_tells_the_outside_once(farm: Farm) -> None:
    farm.submit(notify=True)
    for pool in (TALKER, CODEC, FINISH):
        farm.write_all(farm.claim(pool))
    store = farm.claim(STORE)
    assert [farm.commit(store, RESULT), farm.commit(store, RESULT)] == ["ok", "ok"]
    assert farm.server.xlen(farm.keys.outbox()) == 1


def test_a_job_that_nobody_wants_to_hear_of_makes_no_event(farm: Farm) -> None:
    farm.finish_all(farm.submit())
    assert farm.server.xlen(farm.keys.outbox()) == 0


def test_a_result_frees_whatever_else_of_the_job_is_still_owned_or_waiting(farm: Farm) -> None:
    job = farm.submit(segments=("a", "b", "c"))
    farm.claim(TALKER)
    farm.claim(CODEC)
    farm.claim(FINISH)
    assert farm.commit(farm.claim(STORE), RESULT) == "ok"
    assert farm.state(job) == "succeeded"
    farm.assert_gone_in_time(job)


# -- reopen -----------------------------------------------------------------------------------------------------------


def done(farm: Farm) -> Claim:
    """A codec task that was done, with its log."""
    farm.submit()
    farm.write_all(farm.claim(TALKER))
    claimed = farm.claim(CODEC)
    farm.write_all(claimed, b"abcdef")
    return claimed


def test_a_reader_has_a_lost_log_made_again_from_where_it_stands(farm: Farm) -> None:
    claimed = done(farm)
    farm.lose(farm.log(claimed))
    assert farm.reopen(claimed, 4) == "reopened"
    again = farm.claim(CODEC)
    assert (again.task, again.base) == (claimed.task, 4)
    assert farm.writer(again, again.base).end == 4


def test_a_reopened_task_has_a_new_token(farm: Farm) -> None:
    claimed = done(farm)
    farm.reopen(claimed)
    again = farm.claim(CODEC)
    assert int(again.token.split(":")[0]) == int(claimed.token.split(":")[0]) + 1
    assert farm.commit(claimed) == "fenced"


def test_a_task_that_somebody_is_at_is_not_reopened(farm: Farm) -> None:
    farm.submit()
    claimed = farm.claim(TALKER)
    assert farm.reopen(claimed, 4) == "running"
    farm.handback(claimed)
    assert farm.reopen(claimed, 4) == "running"
    assert len(farm.ready(TALKER)) == 1


def test_a_task_is_reopened_once_however_often_a_reader_asks(farm: Farm) -> None:
    claimed = done(farm)
    assert [farm.reopen(claimed), farm.reopen(claimed)] == ["reopened", "running"]
    assert len(farm.ready(CODEC)) == 1


def test_a_needless_reopening_finds_the_log_complete(farm: Farm) -> None:
    claimed = done(farm)
    farm.reopen(claimed, 6)
    again = farm.claim(CODEC)
    assert farm.fence(again, again.base).trailer == b"{}"
    assert farm.commit(again) == "ok"


def test_an_old_owner_that_made_a_lost_log_again_does_not_keep_its_readers_waiting(farm: Farm) -> None:
    farm.submit()
    old = farm.claim_lapsed(TALKER)
    farm.reap()
    new = farm.claim(TALKER, "successor")
    writer = farm.writer(new)
    writer.append(b"abcd")
    writer.seal()
    farm.lose(writer.log)
    farm.fence(old)
    assert farm.commit(new) == "ok"
    assert farm.reopen(new, 2) == "reopened"  # the log is there, and nobody would ever go on with it
    assert farm.writer(farm.claim(TALKER)).append(b"abcd") == "ok"


def test_the_wish_of_a_reader_is_forgotten_with_the_commit(farm: Farm) -> None:
    claimed = done(farm)
    farm.reopen(claimed, 4)
    farm.commit(farm.claim(CODEC))
    assert "from" not in farm.task(claimed)


def test_nothing_of_a_closed_job_is_reopened(farm: Farm) -> None:
    claimed = done(farm)
    farm.end_job(claimed.task.job, "cancelled")
    assert farm.reopen(claimed) == "closed"


# -- reap -------------------------------------------------------------------------------------------------------------


def lapse(farm: Farm, pool: str, end: int) -> Claim:
    """A claim that gets as far as `end` and is then lost."""
    claimed = farm.claim(pool)
    farm.renew(claimed, end, lease_ms=0)
    farm.reap()
    return claimed


def test_a_lost_worker_s_task_is_ready_again(farm: Farm) -> None:
    farm.submit()
    lost = farm.claim_lapsed(TALKER)
    assert farm.reap() == []
    assert farm.claim(TALKER).task == lost.task


def test_the_farm_s_own_stages_run_beside_each_other_after_a_failed_try_too(farm: Farm) -> None:
    """They hold a task for as long as its job lasts: one alone would keep all other jobs waiting."""
    farm.submit()
    farm.claim(TALKER)
    farm.claim(CODEC)
    assert farm.handback(farm.claim(FINISH), FAILURE) == "ok"
    again = farm.claim(FINISH)
    assert (again.attempts, again.solo) == (1, False)


def test_a_lease_that_runs_is_left_alone(farm: Farm) -> None:
    farm.submit()
    farm.claim(TALKER)
    farm.reap()
    assert farm.ask(TALKER) == "none"


def test_an_attempt_counts_only_without_progress(farm: Farm) -> None:
    farm.submit()
    assert [lapse(farm, TALKER, end).attempts for end in (5, 9, 9, 9)] == [0, 0, 0, 1]
    assert farm.claim(TALKER).attempts == 2


def test_a_task_that_makes_progress_is_never_given_up(farm: Farm) -> None:
    job = farm.submit(max_attempts=1)
    for end in range(1, 6):
        lapse(farm, TALKER, end)
    assert farm.state(job) == "running"


def test_a_worker_that_is_lost_with_all_of_a_job_is_one_attempt_more(farm: Farm) -> None:
    job = farm.submit()
    for pool in (TALKER, CODEC):
        farm.claim_lapsed(pool)
    version = farm.record(job).version
    farm.reap()
    assert (farm.record(job).attempt, farm.record(job).version) == (2, version + 1)


def test_a_task_that_is_lost_too_often_fails_its_job(farm: Farm) -> None:
    job = farm.submit(max_attempts=2)
    farm.claim_lapsed(TALKER)
    assert farm.reap() == []
    farm.claim_lapsed(TALKER)
    assert farm.reap() == [job]
    record = farm.record(job)
    assert (record.state, record.dead_task) == ("failed", f"{job}/1/0/talker")
    assert record.error is not None
    assert record.error["code"] == "generation_failed"


@pytest.mark.parametrize("begun", [False, True])
def test_a_late_job_expires(farm: Farm, begun: bool) -> None:
    job = farm.submit(timeout_s=0)
    if begun:
        farm.claim(TALKER)
    assert farm.reap() == [job]
    record = farm.record(job)
    assert record.state == "expired"
    assert record.error is not None
    assert record.error["code"] == "deadline_exceeded"


def test_an_index_entry_without_a_record_does_not_block_the_reaper(farm: Farm) -> None:
    farm.server.zadd(farm.keys.live(), {"job_unknown": 1})
    farm.reap()
    assert farm.reap() == []


def test_the_log_of_a_lost_worker_is_continued_exactly(farm: Farm) -> None:
    farm.submit()
    lost = farm.claim_lapsed(TALKER)
    farm.writer(lost).append(b"abc")
    farm.reap()
    writer = farm.writer(farm.claim(TALKER))
    assert writer.append(b"def") == "ok"
    assert farm.audio(writer.log) == b"abcdef"
    assert farm.server.ttl(farm.keys.log(writer.log)) <= TTL_S
