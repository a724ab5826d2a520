"""`--dry-run`: how much it is, and how long it may take; the farm is asked for what it did lately, and does nothing."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from speechmill.cli.remote import Refused, Remote, Unreachable
from speechmill.cli.submit.rows import Planned
from speechmill.cli.submit.sending import JOBS

CHARS_PER_S = 15.0
"""Of read English: about 150 words a minute."""
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
    """Seconds of audio per second in which any of the farm's last hundred jobs was spoken; None where it tells none."""
    try:
        jobs = farm.told("GET", JOBS, params={"status": "succeeded", "limit": 100})["data"]
    except (Refused, Unreachable):
        return None
    ended = [job for job in jobs if job["result"] and job["started_at"]]
    if len(ended) < FEWEST:
        return None
    audio_s = sum(job["result"]["duration_ms"] for job in ended) / 1000
    return float(audio_s / _covered_s((job["started_at"], job["finished_at"]) for job in ended))


def _covered_s(spans: Iterable[tuple[int, int]]) -> int:
    """Seconds that lie in any of the spans; their ends are told in whole seconds, and belong to them."""
    covered, reached = 0, 0
    for start, end in sorted(spans):
        covered += max(end + 1 - max(start, reached), 0)
        reached = max(reached, end + 1)
    return covered
