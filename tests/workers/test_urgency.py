"""Who is needed first, at any moment and among any works."""

import time
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from speechmill.infra.messages import Heard
from speechmill.workers.batcher import rank
from speechmill.workers.pace import Pace
from speechmill.workers.runner import Runner
from speechmill.workers.urgency import (
    AHEAD_S,
    NEWS_S,
    PUBLISH_S,
    RUNNING_DRY,
    STARTING,
    UNHEARD,
    Deadlines,
    least_late,
    slack_s,
)
from speechmill.workers.work import Work

from .works import RATE, runner_of, work_of

NOW = 1000.0
SECONDS = st.floats(0, 30)


@st.composite
def any_work(draw: st.DrawFn) -> Work:
    number = draw(st.integers(0, 7))
    live = draw(st.booleans())
    job_class = draw(st.sampled_from(["normal", "batch"]))
    work = work_of(f"job{number}", draw(st.integers(0, 2)), live=live, job_class=job_class)
    work.arrived = NOW - number
    work.made = round(draw(SECONDS) * RATE)
    work.begun = work.made > 0
    if draw(st.booleans()):
        work.playing_since = NOW - draw(SECONDS)
    return work


def measured(works: Sequence[Work], step_s: float = 0.09, audio_s: float = 0.25, batch: int = 0) -> Runner:
    """A stage whose steps take so long for each slot, and bring it on by so much."""
    runner = runner_of("voice", works, batch=batch)
    for rows in (1, 2, 4) * 8:
        runner.pace.note(rows, step_s * rows, audio_s * rows)
    return runner


def ranked(works: Sequence[Work], runner: Runner, now: float = NOW) -> list[Work]:
    return [work for _, work in rank(works, runner, Deadlines([runner], now))]


@given(st.lists(any_work(), min_size=1, max_size=12), st.randoms())
def test_the_order_is_that_of_the_works_and_not_of_their_slots(works: list[Work], random: object) -> None:
    runner = measured(works)
    mixed = list(works)
    random.shuffle(mixed)  # type: ignore[attr-defined]
    order = Deadlines([runner], NOW)
    wanted = [order.urgency(work, runner) for work in ranked(works, runner)]
    assert [order.urgency(work, runner) for work in ranked(mixed, runner)] == wanted


@given(st.lists(any_work(), min_size=1, max_size=12))
def test_those_who_play_and_run_dry_stand_first_by_what_they_have(works: list[Work]) -> None:
    runner = measured(works)
    order = Deadlines([runner], NOW)
    needs = [order.urgency(work, runner) for work in ranked(works, runner)]
    assert needs == sorted(needs)
    dry = [
        slack_s(work, RATE, NOW)
        for work in works
        if work.claim.live and work.playing_since is not None and slack_s(work, RATE, NOW) < PUBLISH_S
    ]
    assert [seconds for need, _, seconds in needs[: len(dry)] if need == RUNNING_DRY] == sorted(dry)


@given(st.lists(any_work(), min_size=1, max_size=12))
def test_whoever_plays_or_has_begun_or_is_heard_by_nobody_is_never_kept_waiting(works: list[Work]) -> None:
    served = ranked(works, measured(works))
    for work in works:
        if not work.claim.live or work.playing_since is not None or work.begun:
            assert work in served
    assert served, "somebody is always served"


@given(st.lists(any_work(), min_size=2, max_size=12))
def test_a_later_start_never_passes_an_earlier_one_of_its_class(works: list[Work]) -> None:
    served = ranked(works, measured(works))
    going = {work.task.job for work in works if work.claim.live and (work.begun or work.playing_since is not None)}
    starts = [work for work in works if work.claim.live and work.task.job not in going]
    for early in starts:
        for late in starts:
            if early.claim.job_class == late.claim.job_class and early.arrived < late.arrived and late in served:
                assert early in served


@given(st.lists(any_work(), min_size=1, max_size=12), st.integers(0, 4))
def test_a_batch_is_the_beginning_of_the_order_as_far_as_the_stage_takes_it(works: list[Work], batch: int) -> None:
    runner = measured(works, batch=batch)
    order = Deadlines([runner], NOW)
    chosen = order.batch(rank(works, runner, order), runner)
    assert chosen == ranked(works, runner)[: len(chosen)]
    assert 1 <= len(chosen) <= runner.limit


@given(any_work(), SECONDS)
def test_time_is_on_nobody_s_side_who_plays(work: Work, passed: float) -> None:
    lost = slack_s(work, RATE, NOW) - slack_s(work, RATE, NOW + passed)
    assert abs(lost - (passed if work.playing_since is not None else 0.0)) < 1e-6


def test_a_later_segment_is_not_late_by_what_its_listener_missed_before() -> None:
    news = Heard(joined=1, samples=4000, playing_s=14.0, stalled_s=10.0)
    for work in (work_of(segment=1, heard=news), work_of(segment=1)):
        work.hear(news)
        assert abs(slack_s(work, RATE, time.monotonic())) < 1.0
        work.stalled_s = 11.0
        assert abs(slack_s(work, RATE, time.monotonic()) - 1.0) < 1.0, "what it has seen itself holds if it is more"


def playing(job: str, slack: float) -> Work:
    work = work_of(job)
    work.playing_since, work.made = NOW, round(slack * RATE)
    return work


def test_nobody_is_started_who_would_be_one_too_many_and_the_next_is_when_a_stream_is_through() -> None:
    start = work_of("start")
    works = [playing("one", 3.0), playing("two", 3.0), start]
    assert start not in ranked(works, measured(works)), "three at 0.36 each"
    assert start in ranked(works[1:], measured(works[1:]))
    assert start in ranked(works, measured(works, step_s=0.05))


def test_somebody_is_started_after_all_when_everybody_has_much_to_hear() -> None:
    start = work_of("start")
    works = [playing("one", AHEAD_S + 1), playing("two", AHEAD_S + 1), start]
    assert ranked(works, measured(works))[0] is start


def test_a_stage_of_unknown_pace_begins_with_one() -> None:
    works = [work_of(f"job{number}") for number in range(3)]
    assert len(ranked(works, runner_of("voice", works))) == 1


def test_a_stage_that_reads_recordings_takes_no_room_from_streams() -> None:
    """Nobody has used it yet, or it takes its time for each recording: streams do not go through it."""
    begun, start = work_of("begun"), work_of("start")
    begun.begun = True
    for steps in (0, 8):
        recording = work_of("recording", stage="encode")
        voice, encode = measured([begun, start]), runner_of("encode", [recording])
        for _ in range(steps):
            encode.pace.note(1, 3.0, 1.0)
        order = Deadlines([encode, voice], NOW)
        assert order.urgency(start, voice)[0] == STARTING
        assert order.urgency(start, voice) < order.urgency(recording, encode) < (UNHEARD, 0, 0.0)


def test_a_recording_is_read_although_there_is_no_room_for_another_stream() -> None:
    recording, start = work_of("recording", stage="encode"), work_of("start")
    streams = [playing("one", 3.0), playing("two", 3.0), start]
    voice, encode = measured(streams), runner_of("encode", [recording])
    order = Deadlines([encode, voice], NOW)
    assert [work for _, work in rank([recording], encode, order)] == [recording]
    assert start not in [work for _, work in rank(streams, voice, order)]


def test_a_stage_that_reads_recordings_makes_no_stream_be_in_a_hurry() -> None:
    work = playing("one", 5.0)
    voice, encode = measured([work]), runner_of("encode", [])
    alone = Deadlines([voice], NOW).urgency(work, voice)
    encode.pace.note(1, 0.1, 1.0)
    assert Deadlines([encode, voice], NOW).urgency(work, voice) == alone


def test_a_stream_that_waits_for_its_client_to_write_on_takes_no_room() -> None:
    for slack, is_started in ((1.0, False), (0.0, True)):
        start, works = work_of("start"), [work_of(f"job{number}", open_text=True) for number in range(3)]
        for work in works:
            work.begun, work.playing_since, work.made = True, NOW, round(slack * RATE)
        runner = measured([*works, start])
        runner.stage.runnable = lambda slot, ready=start.slot: slot == ready  # type: ignore[method-assign, misc]
        assert (start in ranked([start], runner)) == is_started
        runner.stage.runnable = lambda slot: True  # type: ignore[method-assign]
        assert start not in ranked([start], runner)


def test_a_stream_that_waits_for_its_client_is_no_reason_to_think_that_others_lack_time() -> None:
    start, waiting = work_of("start"), work_of("waiting", open_text=True)
    waiting.begun = True
    works = [playing("one", AHEAD_S + 1), playing("two", AHEAD_S + 1), waiting, start]
    runner = measured(works)
    runner.stage.runnable = lambda slot: slot != waiting.slot  # type: ignore[method-assign]
    assert start in ranked([start], runner)


def test_starts_and_bulk_wait_while_somebody_runs_dry_and_no_longer() -> None:
    start, bulk = work_of("start"), work_of("bulk", live=False, job_class="batch")
    for slack, companions in ((0.1, []), (3.0, [start, bulk])):
        works = [playing("one", slack), start, bulk]
        runner = measured(works)
        order = Deadlines([runner], NOW)
        chosen = order.batch(rank(works, runner, order), runner)
        assert [work for work in chosen if work in (start, bulk)] == companions


def test_bulk_goes_before_a_stream_that_is_far_ahead() -> None:
    bulk, near, far = work_of("bulk", live=False), playing("near", AHEAD_S - 1), playing("far", AHEAD_S + 1)
    works = [far, bulk, near]
    assert ranked(works, measured(works)) == [near, bulk, far]


def test_a_stage_is_in_a_greater_hurry_for_the_stages_behind_it() -> None:
    """And of two starts the one is brought on that is nearer to being heard."""
    works = {name: playing("one", 1.0) for name in ("codec", "talker")}
    codec, talker = (runner_of(name, [work]) for name, work in works.items())
    codec.pace.note(1, 0.3, 0.25)
    talker.pace.note(1, 0.3, 0.25)
    order = Deadlines([codec, talker], NOW)
    assert order.urgency(works["talker"], talker) < order.urgency(works["codec"], codec)
    for work in works.values():
        work.playing_since, work.begun = None, True
    order = Deadlines([codec, talker], NOW)
    needs = order.urgency(works["codec"], codec), order.urgency(works["talker"], talker)
    assert needs[0] < needs[1]
    assert {need[0] for need in needs} == {STARTING}
    assert STARTING < UNHEARD


def test_what_went_to_a_stage_elsewhere_counts_as_heard_until_there_could_be_news_of_it() -> None:
    begun = work_of("begun")
    begun.begun, begun.made, begun.sent = True, round(0.2 * RATE), NOW
    talker = measured([begun])
    talker.card = talker.card.model_copy(update={"unit": "codes"})
    for now, need in ((NOW, RUNNING_DRY), (NOW + NEWS_S / 2, RUNNING_DRY), (NOW + NEWS_S, STARTING)):
        assert Deadlines([talker], now).urgency(begun, talker)[0] == need


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=40).map(sorted))
def test_where_only_steps_cost_all_who_run_dry_share_one(slacks: list[float]) -> None:
    pace = Pace()
    for rows in (1, 10, 40) * 5:
        pace.note(rows, 0.1, 0.25 * rows)
    assert least_late(slacks, pace) == len(slacks)


def test_where_rows_cost_those_in_need_go_alone() -> None:
    pace = Pace()
    for rows in (1, 2, 4, 8) * 5:
        pace.note(rows, 0.02 * rows, 0.25 * rows)
    assert least_late([0.03, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25], pace) <= 2
    assert least_late([0.2] * 8, pace) == 8


@given(st.lists(st.tuples(st.integers(1, 64), st.floats(1e-4, 2.0)), min_size=1, max_size=50))
def test_a_larger_step_is_never_expected_to_be_faster_and_no_slower_than_its_rows(
    steps: list[tuple[int, float]],
) -> None:
    pace = Pace()
    for rows, took_s in steps:
        pace.note(rows, took_s, 0.25 * rows)
    expected = [pace.step_s(rows) for rows in range(1, 65)]
    assert expected == sorted(expected)
    assert expected[0] > -1e-9
    assert all(more <= 2 * less + 1e-9 for less, more in zip(expected[:32], expected[1::2], strict=True))


def test_one_step_that_something_else_held_up_makes_nobody_hurry_for_long() -> None:
    for idle_s in (0.0, 1.0):
        pace = Pace()
        for took_s in [0.1] * 50 + [5.0] + [0.1] * 10:
            pace.note(4, took_s, 1.0, idle_s)
        assert pace.step_s(4) < 0.2
        assert pace.longest_s < (0.5 if not idle_s else 0.11)


def test_a_stage_that_became_slower_is_soon_known_to_be() -> None:
    pace = Pace()
    for took_s in [0.01] * 500 + [0.1] * 200:
        pace.note(4, took_s, 1.0)
    assert abs(pace.step_s(4) - 0.1) < 0.01
    assert pace.load(4, 64) > 0.3
