"""Who runs in the next step: a listener that will run dry first goes first, work that nobody hears goes last."""

import time
from collections.abc import Sequence

from speechmill.workers.work import Work


def lead_s(work: Work, rate: float, now: float) -> float:
    """Seconds of audio made beyond what a listener can have heard; -inf before the first audio."""
    if not work.first_audio:
        return float("-inf")
    return work.made / rate - (now - work.first_audio)


def choose(works: Sequence[Work], rate: float, limit: int) -> list[Work]:
    """At most `limit` of the runnable works. A suspect runs alone, after the others."""
    if len(works) > 1 and any(work.claim.solo for work in works):
        works = [work for work in works if not work.claim.solo] or works[:1]
    now = time.monotonic()
    order = sorted(works, key=lambda work: (not work.claim.live, lead_s(work, rate, now)))
    return order[:limit]
