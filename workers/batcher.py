"""Who runs in the next step: the listener that runs dry first goes first, work that nobody hears goes last.

Under overload this keeps streams that already play gapless: a job that came later has the later deadline.
"""

from collections.abc import Sequence

from speechmill.workers.work import Work


def urgency(work: Work, rate: float) -> tuple[bool, bool, float]:
    """Orders works; `rate` is the stage's frames per second. The deadline moves on with what is made."""
    claim = work.claim
    return not claim.live, claim.job_class == "batch", work.deadline + work.made / rate


def choose(works: Sequence[Work], rate: float, limit: int) -> list[Work]:
    """At most `limit` of the runnable works. A suspect runs alone, after the others."""
    blameless = [work for work in works if not work.claim.solo]
    if len(blameless) < len(works):
        works = blameless or works[:1]
    return sorted(works, key=lambda work: urgency(work, rate))[:limit]
