"""How loud a sound is as a whole (ITU-R BS.1770-4, by FFmpeg's `ebur128`), and the gain that makes it as wanted.

A gain that is the same from the first sample to the last leaves the reading's own dynamics as they are.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from speechmill.cli.book.chain import Chain

if TYPE_CHECKING:
    import av

    from speechmill.cli.book.timeline import Block

PEAK_DBTP = -1.0
"""No true peak is louder than this in the end."""
MOST_HELD_DB = 6.0
"""So far peaks may be held down for the sake of the loudness; more would be heard."""
SILENT_LUFS = -70.0
"""The absolute gate: what is not louder than this has no loudness."""


@dataclass(frozen=True, slots=True)
class Loudness:
    """Integrated loudness in LUFS, true peak (4 × oversampled) in dBTP."""

    lufs: float
    peak_dbtp: float

    def gain_db(self, target_lufs: float) -> float:
        """Towards the target, as far as the peaks allow; 0 for silence."""
        if self.lufs <= SILENT_LUFS:
            return 0.0
        return min(target_lufs - self.lufs, PEAK_DBTP + MOST_HELD_DB - self.peak_dbtp)

    def needs_limit(self, gain_db: float) -> bool:
        """Whether peaks must be held down with this gain."""
        return self.peak_dbtp + gain_db > PEAK_DBTP


class Meter:
    """Measures what is fed to it; holds none of it."""

    def __init__(self, rate: int, channels: int) -> None:
        self._chain = Chain(rate, channels, [("ebur128", "metadata=1:peak=true:framelog=quiet")])
        self._told: dict[str, str] = {}

    def feed(self, block: "Block") -> None:
        self._take(self._chain.feed(block))

    def finish(self) -> Loudness:
        self._take(self._chain.finish())
        peak = float(self._told.get("lavfi.r128.true_peak", 0))
        lufs = float(self._told.get("lavfi.r128.I", SILENT_LUFS))
        return Loudness(max(lufs, SILENT_LUFS), 20 * math.log10(peak) if peak > 0 else -math.inf)

    def _take(self, frames: "Iterable[av.AudioFrame]") -> None:
        """The numbers in the last frame are those of all that came before."""
        for frame in frames:
            self._told = frame.metadata or self._told
