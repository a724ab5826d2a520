"""Blocks of sound as FFmpeg takes them."""

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import av

    from speechmill.cli.book.timeline import Block

FORMAT = "flt"
LAYOUTS = {1: "mono", 2: "stereo"}


def frame_of(block: "Block", rate: int, at: int) -> "av.AudioFrame":
    """`at` counts frames from the beginning."""
    import av

    interleaved = np.ascontiguousarray(block, np.float32).reshape(1, -1)
    frame = av.AudioFrame.from_ndarray(interleaved, FORMAT, LAYOUTS[block.shape[1]])
    frame.sample_rate, frame.time_base, frame.pts = rate, Fraction(1, rate), at
    return frame
