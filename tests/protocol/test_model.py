"""The protocol is safe and live in every interleaving of a small farm, and each of its rules is needed for that."""

from functools import cache

import pytest

from .model import Rules, Walk, explore

SAFETY = {
    "owner functions check the token": "an old token had its way with the task",
    "a claim has a new epoch": "a job succeeded without all of its audio",
    "fence refuses older tokens": "chunks of two owners are interleaved",
    "emit checks the token": "an old token appended",
    "emit checks the position": "audio was doubled or skipped",
    "seal checks the token": "a job succeeded without all of its audio",
    "readers never skip": "audio was doubled or skipped",
}
LIVENESS = {
    "fence makes a log again from an earlier base": 2,
    "reopen wakes a finished task": 1,
    "reap makes the task ready again": 1,
    "the last owner ends a cancel": 1,
    "a silent reader asks": 2,
}
"""And how many faults it takes."""
PCM, CODES = Rules(), Rules(cuttable=False)


@cache
def walked(faults: int, rules: Rules) -> Walk:
    return explore(faults, rules)


@pytest.mark.parametrize("rules", [PCM, CODES, Rules(frames=3), Rules(frames=3, cuttable=False)], ids=str)
def test_nothing_is_doubled_skipped_or_interleaved_whatever_happens(rules: Rules) -> None:
    assert not walked(2 if rules.frames == 2 else 1, rules).violation


@pytest.mark.parametrize("rules", [PCM, CODES, Rules(frames=3), Rules(frames=3, cuttable=False)], ids=str)
def test_every_job_can_still_end_well_from_wherever_faults_have_brought_it(rules: Rules) -> None:
    assert not walked(2 if rules.frames == 2 else 1, rules).stuck


@pytest.mark.parametrize("rules", [PCM, CODES], ids=str)
def test_a_job_ends_succeeded_or_cancelled_as_long_as_attempts_suffice(rules: Rules) -> None:
    ends = {state.job for state in walked(2, rules).parents} - {"running", "cancelling"}
    assert ends == {"succeeded", "cancelled"}


def test_without_faults_every_job_succeeds() -> None:
    ends = {state.job for state in walked(0, PCM).parents} - {"running"}
    assert ends == {"succeeded"}


def test_one_fault_never_fails_a_job_that_may_be_tried_twice() -> None:
    walk = walked(1, Rules(max_attempts=2))
    assert not walk.violation
    assert not walk.stuck
    assert not [state for state in walk.parents if state.job == "failed"]


def test_a_job_without_attempts_left_fails_and_does_not_hang() -> None:
    walk = walked(1, Rules(max_attempts=1))
    assert not walk.violation
    assert not walk.stuck
    assert [state for state in walk.parents if state.job == "failed"]


@pytest.mark.parametrize("rule", SAFETY)
def test_safety_is_lost_without(rule: str) -> None:
    assert explore(2, Rules(off=frozenset({rule}))).violation.startswith(SAFETY[rule])


@pytest.mark.parametrize("rule", LIVENESS)
def test_jobs_hang_without(rule: str) -> None:
    walk = explore(LIVENESS[rule], Rules(off=frozenset({rule})))
    assert not walk.violation
    assert walk.stuck


def test_jobs_hang_when_a_reader_of_codes_waits_for_borders_that_never_come() -> None:
    walk = explore(1, Rules(off=frozenset({"a reader off the borders begins anew"}), cuttable=False))
    assert walk.stuck
