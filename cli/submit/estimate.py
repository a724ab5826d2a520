"""`--dry-run`: how much it is, and how long it may take; the farm is asked for what it did lately, and does nothing."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from speechmill.cli.remote import Refused, Remote, Unreachable
from speechmill.cli.submit.sending import JOBS
from speechmill.cli.submit.state import Planned

CHARS_PER_S = 15.0
"""Of read English: about 150 words a minute."""
RECENT_S = 300
"""Jobs that ended so long before the last one tell the rate."""
FEWEST = 5


@dataclass(slots=True)
class Volume:
    """Counts what passes through."""

    items: int = 0
    chars: int = 0

    def counted(self, planned: Iterable[Planned]) -> Iterator[Planned]:
        for one in planned:
            self.items += 1
            self.chars += len(json.loads(one.body)["request"]["input"])
            yield one

    @property
    def audio_s(self) -> float:
        return self.chars / CHARS_PER_S


def recent_rate(farm: Remote) -> float | None:
    """Seconds of audio that the farm made per second while it made its last hundred jobs; None where it tells none."""
    try:
        jobs = farm.told("GET", JOBS, params={"status": "succeeded", "limit": 100})["data"]
    except (Refused, Unreachable):
        return None
    ended = [job for job in jobs if job["result"] and job["started_at"]]
    last = max((job["finished_at"] for job in ended), default=0)
    recent = [job for job in ended if job["finished_at"] >= last - RECENT_S]
    if len(recent) < FEWEST:
        return None
    span_s = max(last - min(job["started_at"] for job in recent), 1)
    return float(sum(job["result"]["duration_ms"] for job in recent) / 1000 / span_s)
