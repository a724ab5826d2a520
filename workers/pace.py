"""How fast a stage has been of late: what a step of so many rows takes, and what so many streams ask of it."""

import math

MEMORY_S = 5.0
"""What was measured longer ago has little weight."""
KNOWN = 4.0
"""Steps of late that tell what one takes."""
OUTLIER = 4.0
"""A step that took more times as long as was expected was held up by something else, unless the next one is as well."""
HICCUP_S = 0.5
"""A busy machine holds up any step for less, and may do so again soon."""
DOUBT = 0.05
"""Weight of the guess that half of a step's time is for its rows, against batches of many sizes that tell better."""


class Pace:
    """Weighted sums over the steps of the last seconds."""

    def __init__(self) -> None:
        self._steps = self._rows = self._took_s = self._audio_s = 0.0
        self._rows_squared = self._rows_took_s = 0.0
        self.longest_s = 0.0
        """What a step may well take, whatever is in it."""
        self._is_held_up = False

    def note(self, rows: int, took_s: float, audio_s: float, idle_s: float = 0.0) -> None:
        """A step of `rows` slots is done and has brought on their logs by `audio_s` seconds in all.

        `idle_s`: between the step before and this one.
        """
        kept = math.exp(-(took_s + idle_s) / MEMORY_S)
        most_s = max(OUTLIER * self.step_s(rows), HICCUP_S) if self._steps >= KNOWN else math.inf
        was_held_up, self._is_held_up = self._is_held_up, took_s > most_s
        if self._is_held_up and not was_held_up:
            took_s = most_s
        self.longest_s = max(self.longest_s * kept, took_s)
        self._steps = self._steps * kept + 1
        self._rows = self._rows * kept + rows
        self._took_s = self._took_s * kept + took_s
        self._audio_s = self._audio_s * kept + audio_s
        self._rows_squared = self._rows_squared * kept + rows * rows
        self._rows_took_s = self._rows_took_s * kept + rows * took_s

    def step_s(self, rows: int) -> float:
        """Expected time of a step of `rows` slots: a line through what was measured, which passes no axis below 0."""
        if not self._steps:
            return 0.0
        mean_rows, mean_s = self._rows / self._steps, self._took_s / self._steps
        spread = self._rows_squared / self._steps - mean_rows**2
        together = self._rows_took_s / self._steps - mean_rows * mean_s
        each_s = (together + DOUBT * mean_rows * mean_s / 2) / (spread + DOUBT * mean_rows**2)
        return mean_s + min(max(each_s, 0.0), mean_s / mean_rows) * (rows - mean_rows)

    def load(self, streams: int, limit: int) -> float:
        """Share of its time that the stage needs to keep so many streams playing; while nothing is known, one is tried.

        `limit`: rows of a step at most.
        """
        if not streams:
            return 0.0
        if not self._audio_s:
            return streams - 1.0
        rows = min(streams, limit)
        return streams * self.step_s(rows) / (rows * self._audio_s / self._rows)
