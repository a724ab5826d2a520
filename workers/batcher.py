"""Who runs in the next step: the listener that runs dry first goes first, work that nobody hears goes last.

Under overload this keeps streams that already play gapless: a job that came later has the later deadline.
"""

from collections.abc import Sequence

from speechmill.workers.runner import Runner
from speechmill.workers.work import Work

Urgency = tuple[bool, bool, float]


def urgency(work: Work, rate: float) -> Urgency:
    """Orders works; `rate` is the stage's frames per second.

    The deadline moves on with what a listener can play. What nobody hears is finished one after the other.
    """
    claim = work.claim
    heard_s = work.made / rate if claim.live else 0.0
    return not claim.live, claim.job_class == "batch", work.deadline + heard_s


def choose(works: Sequence[Work], rate: float, limit: int) -> list[Work]:
    """At most `limit` of the runnable works, the most urgent first. A suspect runs alone, after the others."""
    blameless = [work for work in works if not work.claim.solo]
    if len(blameless) < len(works):
        works = blameless or works[:1]
    return sorted(works, key=lambda work: urgency(work, rate))[:limit]


def pick(runners: Sequence[Runner]) -> tuple[Runner, list[Work]] | None:
    """The stage and batch of the next step: light stages at once, else the most urgent; in doubt the first given."""
    best: tuple[Runner, list[Work]] | None = None
    best_urgency: Urgency = (True, True, float("inf"))
    for runner in runners:
        able = runner.able()
        if not able:
            continue
        batch = choose(able, runner.card.rate, runner.card.batch or runner.slots)
        if runner.light:
            return runner, batch
        first = urgency(batch[0], runner.card.rate)
        if best is None or first < best_urgency:
            best, best_urgency = (runner, batch), first
    return best
