"""Peaks that are too high are held down with a gain that falls before them and rises behind; nothing is clipped.

FFmpeg's look-ahead limiter at four times the sample rate, so that it sees the peaks between the samples too
(ITU-R BS.1770-4, annex 2). What is not near such a peak passes as it is.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from speechmill.cli.book.chain import Chain
from speechmill.cli.book.frames import FORMAT
from speechmill.cli.book.loudness import PEAK_DBTP

if TYPE_CHECKING:
    import av

    from speechmill.cli.book.timeline import Block

OVERSAMPLING = 4
MARGIN_DB = 0.2
"""What the way back to the sample rate may add to a peak."""


class Limiter:
    """As many frames come out as go in, and none is late."""

    def __init__(self, rate: int, channels: int) -> None:
        self._channels = channels
        limit = f"limit={PEAK_DBTP - MARGIN_DB}dB:attack=5:release=50:level=disabled:latency=1"
        self._chain = Chain(
            rate,
            channels,
            [
                ("aresample", str(OVERSAMPLING * rate)),
                ("alimiter", limit),
                ("aresample", str(rate)),
                ("aformat", f"sample_fmts={FORMAT}"),
            ],
        )

    def held(self, blocks: "Iterable[Block]") -> "Iterator[Block]":
        for block in blocks:
            yield from map(self._block, self._chain.feed(block))
        yield from map(self._block, self._chain.finish())

    def _block(self, frame: "av.AudioFrame") -> "Block":
        return frame.to_ndarray().reshape(-1, self._channels).astype(np.float32, copy=False)
