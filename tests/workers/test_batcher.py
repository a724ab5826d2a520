"""Who runs next, whatever the order."""

import time
from dataclasses import replace

from speechmill.models.card import StageCard
from speechmill.workers.batcher import pick
from speechmill.workers.runner import Runner
from speechmill.workers.work import Work

from .toy import Toy
from .works import RATE, runner_of, work_of


def by_arrival(works: list[Work], limit: int) -> list[Work]:
    chosen = pick([runner_of("voice", works, batch=limit)], time.monotonic(), "arrival")
    assert chosen is not None
    return chosen[1]


def test_by_arrival_whoever_would_run_dry_first_had_it_begun_at_once_goes_first() -> None:
    fed, starving, new = work_of(age_s=5), work_of(age_s=5), work_of(age_s=0)
    fed.made = 2000  # twenty seconds of audio after five
    starving.made = 100  # one second of audio after five
    assert by_arrival([fed, new, starving], 2) == [starving, new]


def test_by_arrival_work_that_nobody_hears_waits_and_the_batch_class_waits_longest() -> None:
    bulk, buffered, live = work_of(age_s=9, live=False, job_class="batch"), work_of(age_s=5, live=False), work_of()
    assert by_arrival([bulk, buffered, live], 3) == [live, buffered, bulk]


def test_by_arrival_what_nobody_hears_is_finished_in_the_order_in_which_it_came() -> None:
    begun, next_one = work_of(age_s=9, live=False), work_of(age_s=8, live=False)
    begun.made = 2000
    assert by_arrival([next_one, begun], 1) == [begun]


def test_the_last_places_are_spare() -> None:
    runner = Runner("toy/voice", StageCard(name="voice", unit="pcm", rate=RATE, dtype="s16le", slots=32), Toy(), 32)
    places = [runner.reserve() for _ in range(33)]
    assert places == ["any"] * 30 + ["interactive"] * 2 + [None]
    runner.unreserve()
    assert runner.crowded
    assert runner.reserve() == "interactive"


def test_streams_that_could_not_begin_are_left_to_others() -> None:
    works = [work_of(f"job{number}") for number in range(3)]
    runner = runner_of("voice", works)
    pick([runner], time.monotonic(), "deadline")
    assert (runner.waiting, runner.reserve()) == (2, "unheard")
    while runner.taken < 60:
        runner.reserve()
    assert runner.reserve() == "ongoing"
    works[0].begun = True
    runner.pace.note(1, 0.001, 1.0)
    pick([runner], time.monotonic(), "deadline")
    assert (runner.waiting, runner.reserve()) == (0, "interactive")


def test_a_suspect_runs_alone_after_the_others() -> None:
    suspect, other = work_of(age_s=9, solo=True), work_of()
    assert by_arrival([suspect, other], 4) == [other]
    assert by_arrival([suspect], 4) == [suspect]
    assert len(by_arrival([suspect, work_of(solo=True)], 4)) == 1


def test_light_stages_step_at_once_and_the_others_by_need() -> None:
    waiting = {name: work_of(name, age_s=age_s) for name, age_s in (("calm", 0), ("urgent", 9))}
    light, calm, urgent = (
        runner_of("light", [work_of()], light=True),
        runner_of("calm", [waiting["calm"]]),
        runner_of("urgent", [waiting["urgent"]]),
    )
    now = time.monotonic()
    for scheduling in ("arrival", "deadline"):
        assert pick([calm, urgent, light], now, scheduling) == (light, [light.works[63]])
        assert pick([runner_of("empty", [])], now, scheduling) is None
    assert pick([calm, urgent], now, "arrival") == (urgent, [waiting["urgent"]])
    for work in waiting.values():
        work.playing_since = now
    waiting["calm"].made = 300
    assert pick([calm, urgent], now, "deadline") == (urgent, [waiting["urgent"]])


def test_a_later_segment_comes_later_by_what_is_ahead_of_it() -> None:
    first, third = work_of(), work_of(segment=2)
    assert first.before_s == 0 < third.before_s
    news = replace(first.claim.heard, joined=1, samples=4000, playing_s=3.0)
    third.hear(news)
    assert third.before_s == 8.0, "the one joined is known, the one in between is like it"
    third.hear(replace(news, joined=2, samples=5000))
    assert third.before_s == 5.0
    third.hear(news)
    assert third.before_s == 5.0, "old news came late"
