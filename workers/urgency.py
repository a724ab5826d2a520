"""When each listener runs dry, and who is therefore needed first.

Streams that play are kept playing before others are started: a start that comes late is heard once, a gap each time. A
start is let in if the stages, as fast as they have been of late, can keep one more stream playing. It counts until the
stage itself is through with it, however long it is heard after that.
"""

from collections.abc import Sequence

from speechmill.infra.keys import ENCODE
from speechmill.workers.pace import Pace
from speechmill.workers.runner import Runner
from speechmill.workers.work import Work

PUBLISH_S = 0.08
"""From the end of a step to the listener's ear, on a busy machine."""
AHEAD_S = 10.0
"""As long as it takes to notice that a worker is lost. Who has so much to play gives way to everybody else."""
NEWS_S = 0.5
"""Until it is known whether the next stage, in another process, has made a first piece heard. Meanwhile it counts as
heard at once: the second one must not be late.
"""
HEARABLE_S = 0.02
"""Sound devices bridge shorter silences."""
FULL = 0.8
"""Share of a process's time that streams may need; the rest is for what is not foreseen."""
Urgency = tuple[int, int, float]
"""Kind of need, rank in it, and seconds; smaller goes first."""
RUNNING_DRY, STARTING, PLAYING, UNHEARD, AHEAD, WAITING = range(6)
NEVER: Urgency = (WAITING, 0, 0.0)


def is_heard(work: Work, now: float) -> bool:
    """Whether the job plays, as far as is known."""
    return work.playing_since is not None or now - work.sent < NEWS_S


def slack_s(work: Work, rate: float, now: float) -> float:
    """Seconds until the listener has heard all that the work has made; one that has not begun would begin now.

    `rate`: units of the work's log per second.
    """
    since = work.playing_since
    if since is None:
        since = work.sent if now - work.sent < NEWS_S else now
    return since + work.before_s + work.made / rate / work.claim.request.stretch + work.still_s - now


def least_late(slacks: Sequence[float], pace: Pace) -> int:
    """How many of those that run dry go into the next step, the rest into the one after, so that no gap is long.

    `slacks`: in seconds, ascending. More where nobody would hear the difference: steps are cheaper together.
    """
    due = [max(slack, 0.0) for slack in slacks]

    def gap_s(count: int) -> float:
        first_s = pace.step_s(count)
        both_s = first_s + pace.step_s(len(due) - count)
        return max(first_s - due[0], both_s - due[count] if count < len(due) else 0.0, 0.0)

    counts = [len(due), *(1 << power for power in reversed(range((len(due) - 1).bit_length())))]
    gaps = {count: gap_s(count) for count in counts}
    return next(count for count in counts if gaps[count] <= min(gaps.values()) + HEARABLE_S)


class Arrivals:
    """Who came first goes first, as if each listener had begun to play at once; live work before the rest."""

    def __init__(self, runners: Sequence[Runner], now: float) -> None:
        self.able = {runner: runner.able() for runner in runners}

    def urgency(self, work: Work, runner: Runner) -> Urgency:
        claim = work.claim
        due = work.arrived + work.before_s + (work.made / runner.card.rate if claim.live else 0.0)
        return int(not claim.live), claim.job_class == "batch", due

    def batch(self, ranked: Sequence[tuple[Urgency, Work]], runner: Runner) -> list[Work]:
        return [work for _, work in ranked[: runner.limit]]


class Deadlines:
    """The order of one moment, for all stages of a process that take time, a model's last before its first."""

    def __init__(self, runners: Sequence[Runner], now: float) -> None:
        self._now = now
        self._runners = runners
        self._longest_s = max([runner.pace.longest_s for runner in self._runners], default=0.0)
        self._hurry_s = PUBLISH_S + 2 * self._longest_s
        self._streaming = [runner for runner in runners if runner.card.name != ENCODE]
        """The stages that streams go through; a recording is read in a job of its own."""
        self._lead_s = {runner: self._behind_s(runner) for runner in self._streaming}
        for runner in self._streaming:
            runner.hurry(self._runs_dry)
        self.able = {runner: runner.able() for runner in runners}
        self._jobs = {runner: self._begun(runner) for runner in self._streaming}
        for runner in self._streaming:
            for later in self._passed(runner):
                self._jobs[later] |= self._jobs[runner]
        self._admit()

    def _begun(self, runner: Runner) -> set[str]:
        """Jobs whose streams the stage has to keep going."""
        return {
            work.task.job
            for work in runner.works.values()
            if work.claim.live
            and (work.begun or work.playing_since is not None)
            and not self._waits_for_text(work, runner)
        }

    def _waits_for_text(self, work: Work, runner: Runner) -> bool:
        """Nobody but its client can go on with it, who has heard all that was made."""
        is_open = work.claim.open_text and not runner.stage.runnable(work.slot)
        return is_open and slack_s(work, runner.card.rate, self._now) <= 0

    def _behind_s(self, runner: Runner) -> float:
        """What the stages take that come after one, or the way to them."""
        later = self._passed(runner)[:-1]
        if runner.card.unit != "pcm" and not later:
            return PUBLISH_S
        return sum(one.pace.longest_s for one in later)

    def _runs_dry(self, work: Work, runner: Runner) -> bool:
        return work.claim.live and is_heard(work, self._now) and self._slack_s(work, runner) < self._hurry_s

    def _slack_s(self, work: Work, runner: Runner) -> float:
        """What is left for the stage: those after it take their time as well."""
        return slack_s(work, runner.card.rate, self._now) - self._lead_s[runner]

    def urgency(self, work: Work, runner: Runner) -> Urgency:
        claim = work.claim
        if not claim.live:
            return UNHEARD, claim.job_class == "batch", work.arrived
        if runner.card.name == ENCODE:  # streams wait for it, and none comes of it here: it needs no room
            return STARTING, len(self._runners), work.arrived
        is_playing = is_heard(work, self._now)
        if not is_playing and work.task.job not in self._admitted:
            return NEVER
        slack = self._slack_s(work, runner)
        if slack >= AHEAD_S:
            return AHEAD, 0, slack
        if is_playing:
            return (RUNNING_DRY if slack < self._hurry_s else PLAYING), 0, slack
        if work.before_s:
            return PLAYING, 0, slack
        return STARTING, self._runners.index(runner), work.arrived  # the last stage first: then it is heard

    def batch(self, ranked: Sequence[tuple[Urgency, Work]], runner: Runner) -> list[Work]:
        """Nobody who can wait makes a step longer that somebody waits for."""
        slacks = [urgency[2] - PUBLISH_S for urgency, _ in ranked[: runner.limit] if urgency[0] == RUNNING_DRY]
        is_tight = slacks and slacks[0] < self._longest_s
        if is_tight:
            return [work for _, work in ranked[: least_late(slacks, runner.pace)]]
        last = AHEAD if ranked[0][0][0] > STARTING else UNHEARD
        return [work for urgency, work in ranked[: runner.limit] if urgency[0] <= last]

    def _admit(self) -> None:
        """Let in those who have waited longest, as long as there is room; nobody passes them."""
        self._admitted = set[str]().union(*self._jobs.values())
        waiting = [
            (work.claim.job_class == "batch", work.arrived, index, work.task.job)
            for index, runner in enumerate(self._streaming)
            for work in self.able[runner]
            if work.claim.live and work.playing_since is None and work.task.job not in self._admitted
        ]
        refused = {runner: set[str]() for runner in self._streaming}
        for _, _, index, job in sorted(waiting):
            if job in self._admitted:
                continue
            first = self._streaming[index]
            if any(refused.values()) or not self._has_room(first):
                refused[first].add(job)
                continue
            self._admitted.add(job)
            for runner in self._passed(first):
                self._jobs[runner].add(job)
        for runner, jobs in refused.items():
            runner.waiting = len(jobs)

    def _passed(self, first: Runner) -> list[Runner]:
        """The stages here that a stream goes through which waits in this one, the last before the first."""
        upto = self._streaming[: self._streaming.index(first) + 1]
        return [runner for runner in upto if runner.model == first.model]

    def _has_room(self, first: Runner) -> bool:
        if not self._admitted:
            return True
        passed = self._passed(first)
        streams = {runner: len(jobs) + (runner in passed) for runner, jobs in self._jobs.items()}
        load = sum(runner.pace.load(count, runner.limit) for runner, count in streams.items())
        return load <= FULL or self._is_calm()

    def _is_calm(self) -> bool:
        """Everybody who was let in plays, and has enough to play for a while."""
        slacks = [
            self._slack_s(work, runner) if work.playing_since is not None else 0.0
            for runner, jobs in self._jobs.items()
            for work in runner.works.values()
            if work.claim.live and work.task.job in jobs and not self._waits_for_text(work, runner)
        ]
        return min(slacks, default=0.0) >= AHEAD_S
