"""The loop under more work than its stage can do, on a clock that only its steps move on."""

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from speechmill.configs.settings import Scheduling
from speechmill.infra.messages import Heard
from speechmill.models.card import StageCard
from speechmill.models.stage import Chunk, Emission, Resume, StageTask
from speechmill.workers.loop import Loop
from speechmill.workers.runner import Runner
from speechmill.workers.work import Open, Outcome, Work, Written

from .works import RATE, work_of

PIECE_S = 0.25
HOP_S = 0.02
"""From a step's end to the listener."""


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


class Slow:
    """Every slot makes a quarter of a second of audio in a step, which takes its time for itself and for each slot."""

    def __init__(self, clock: Clock, length_s: dict[str, float], cost: tuple[float, float]) -> None:
        self.clock, self.length_s, self.cost = clock, length_s, cost
        self.left: dict[int, float] = {}

    def warm(self) -> None:
        """Nothing to warm."""

    def open(self, slot: int, task: StageTask, resume: Resume) -> None:
        self.left[slot] = self.length_s[task.job]

    def feed(self, slot: int, chunk: Chunk) -> None:
        raise AssertionError("a first stage has no input")

    def runnable(self, slot: int) -> bool:
        return True

    def step(self, slots: Sequence[int]) -> list[Emission]:
        self.clock.now += self.cost[0] + self.cost[1] * len(slots)
        return [self.emission(slot) for slot in slots]

    def emission(self, slot: int) -> Emission:
        self.left[slot] -= PIECE_S
        return Emission(slot, round(PIECE_S * RATE), final=self.left[slot] <= 0)

    def close(self, slot: int) -> None:
        self.left.pop(slot, None)


@dataclass
class Ear:
    """One listener."""

    asked: float
    first: float = 0.0
    dry_at: float = 0.0
    gap_s: float = 0.0
    heard_s: float = 0.0

    def take(self, now: float) -> None:
        self.first = self.first or now
        self.gap_s += max(now - self.dry_at, 0.0) if self.dry_at else 0.0
        self.dry_at = max(self.dry_at, now) + PIECE_S
        self.heard_s += PIECE_S


@dataclass
class Stall:
    """One stage, its loop, and who listens. Jobs come when the clock says so."""

    scheduling: Scheduling
    cost: tuple[float, float] = (0.01, 0.02)
    clock: Clock = field(default_factory=Clock)
    length_s: dict[str, float] = field(default_factory=dict)
    ears: dict[str, Ear] = field(default_factory=dict)
    bulk_at: list[float] = field(default_factory=list)
    """When a piece of what nobody hears was made."""

    def __post_init__(self) -> None:
        card = StageCard(name="voice", unit="pcm", rate=RATE, dtype="s16le", slots=64)
        self.stage = Slow(self.clock, self.length_s, self.cost)
        self.runner = Runner("toy/voice", card, self.stage, 64)
        self.loop = Loop([self.runner], self.outcome, self.scheduling, self.clock)

    def outcome(self, outcome: Outcome) -> None:
        assert isinstance(outcome, Written)
        outcome.work.pending = 0
        if outcome.work.claim.live:
            self.ears[outcome.work.task.job].take(self.clock.now + HOP_S)
        else:
            self.bulk_at.append(self.clock.now)

    def ask(self, job: str, length_s: float, live: bool = True) -> Work:
        self.length_s[job] = length_s
        work = work_of(job, live=live, job_class="interactive" if live else "batch")
        work.arrived = self.clock.now
        self.ears[job] = Ear(self.clock.now)
        assert self.runner.reserve()
        self.loop.put(Open(work, Resume(), {}))
        return work

    def run(self, arrivals: Sequence[tuple[float, float]]) -> list[Ear]:
        """(seconds since the last, seconds of audio) of each stream; until all are through."""
        due, names = self.clock.now, (f"job{number:03}" for number in itertools.count())
        for pause_s, length_s in arrivals:
            due += pause_s
            while self.clock.now < due:
                if not self.loop.turn():
                    self.clock.now = due
            self.ask(next(names), length_s)
        while self.loop.turn():
            pass
        return list(self.ears.values())


def overload(factor: float, count: int = 60) -> list[tuple[float, float]]:
    """Arrivals of streams of 2 to 12 seconds, at so many times what a stage of 20 ms for a quarter second can make."""
    chance = random.Random(7)
    lengths = [chance.uniform(2, 12) for _ in range(count)]
    return [(chance.expovariate(factor * 12.5 / 7), length_s) for length_s in lengths]


def test_streams_that_play_have_no_gaps_although_half_as_much_again_is_asked_for() -> None:
    ears = Stall("deadline").run(overload(1.5))
    assert sum(ear.gap_s > 0.02 for ear in ears) == 0
    assert all(ear.heard_s >= 2 for ear in ears), "everybody was served in the end"


def test_by_arrival_they_have() -> None:
    ears = Stall("arrival").run(overload(1.5))
    assert sum(ear.gap_s > 0.02 for ear in ears) > len(ears) / 2


@pytest.mark.parametrize("cost", [(0.2, 0.0), (0.1, 0.005), (0.0, 0.02)])
def test_they_have_none_whether_steps_are_cheap_or_rows(cost: tuple[float, float]) -> None:
    ears = Stall("deadline", cost).run(overload(1.5))
    assert sum(ear.gap_s > 0.02 for ear in ears) == 0


def test_throughput_is_not_given_away() -> None:
    ended = {}
    for scheduling in ("arrival", "deadline"):
        stall = Stall(scheduling)
        stall.run(overload(1.5))
        ended[scheduling] = stall.clock.now
    assert ended["deadline"] - 1000 < 1.1 * (ended["arrival"] - 1000)


def test_where_there_is_room_nobody_waits_to_begin() -> None:
    ears = Stall("deadline").run(overload(0.4))
    assert max(ear.first - ear.asked for ear in ears) < 1.0
    assert sum(ear.gap_s > 0.02 for ear in ears) == 0


def test_starts_are_served_in_the_order_in_which_they_came() -> None:
    ears = Stall("deadline").run([(0.05, 4.0)] * 30)
    firsts = [ear.first for ear in ears]
    assert firsts == sorted(firsts)


def test_what_nobody_hears_goes_on_as_far_as_nobody_runs_dry() -> None:
    stall = Stall("deadline")
    stall.ask("bulk", 20.0, live=False)
    ears = stall.run(overload(0.8, count=30))
    assert sum(ear.gap_s > 0.02 for ear in ears) == 0
    last_start = max(ear.first for ear in ears)
    assert sum(at < last_start for at in stall.bulk_at) > 20


def test_after_a_pause_that_was_forced_a_stream_asks_for_no_more_than_others() -> None:
    """Its listener stood still meanwhile: what it missed is not owed."""
    stall = Stall("deadline")
    lost, steady = stall.ask("lost", 10.0), stall.ask("steady", 10.0)
    stall.loop.turn()
    lost.playing_since = stall.clock.now - 30
    steady.playing_since = stall.clock.now
    stall.loop.turn()
    stall.loop.turn()
    assert abs(lost.made - steady.made) <= 2 * PIECE_S * RATE
    assert stall.ears["steady"].gap_s < 0.02


def test_a_stream_that_plays_already_is_served_before_those_that_have_not_begun() -> None:
    """As one is that another worker has lost."""
    stall = Stall("deadline")
    for number in range(20):
        stall.ask(f"start{number}", 5.0)
    taken_over = stall.ask("taken over", 5.0)
    taken_over.hear(Heard(0, 0, playing_s=2.0))
    taken_over.playing_since = stall.clock.now
    stall.loop.turn()
    assert taken_over.made > 0
    assert all(work.made == 0 for work in stall.runner.works.values() if work is not taken_over)
