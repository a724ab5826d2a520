"""How loud a sound is as a whole (ITU-R BS.1770-4, by FFmpeg's `ebur128`), and the one gain that makes it as wanted.

A gain that is the same from the first sample to the last leaves the reading's own dynamics as they are.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from speechmill.cli.book.frames import FORMAT, LAYOUTS, frame_of

if TYPE_CHECKING:
    from speechmill.cli.book.timeline import Block

PEAK_DBTP = -1.0
"""No true peak is raised above this."""
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
        return min(target_lufs - self.lufs, PEAK_DBTP - self.peak_dbtp)


class Meter:
    """Measures what is fed to it; holds none of it."""

    def __init__(self, rate: int, channels: int) -> None:
        import av.filter

        self._rate, self._frames = rate, 0
        self._told: dict[str, str] = {}
        self._graph = av.filter.Graph()
        source = self._graph.add_abuffer(
            sample_rate=rate, format=FORMAT, layout=LAYOUTS[channels], time_base=Fraction(1, rate)
        )
        meter = self._graph.add("ebur128", "metadata=1:peak=true:framelog=quiet")
        sink = self._graph.add("abuffersink")
        source.link_to(meter)
        meter.link_to(sink)
        self._graph.configure()

    def feed(self, block: "Block") -> None:
        self._graph.push(frame_of(block, self._rate, self._frames))
        self._frames += len(block)
        self._take()

    def finish(self) -> Loudness:
        self._graph.push(None)
        self._take()
        peak = float(self._told.get("lavfi.r128.true_peak", 0))
        lufs = float(self._told.get("lavfi.r128.I", SILENT_LUFS))
        return Loudness(max(lufs, SILENT_LUFS), 20 * math.log10(peak) if peak > 0 else -math.inf)

    def _take(self) -> None:
        """The numbers in the last frame are those of all that came before."""
        import av

        try:
            while True:
                self._told = self._graph.pull().metadata or self._told
        except (av.BlockingIOError, av.EOFError):
            return
