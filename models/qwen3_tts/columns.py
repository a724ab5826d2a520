"""What a position of the talker is made of: a text id, the codes of a frame, and the number of a vector.

Its input row is the sum of what stands in the column. A control id of the talker stands where a first code would.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from speechmill.models.common.engine.model import Codes, Columns

NONE = -1
"""Nothing is added."""
TEXT, FIRST, VECTOR = 0, 1, -1
"""Rows of a matrix of columns; the other codes stand after the first."""


def width(groups: int) -> int:
    """Integers in a column, for so many codes in a frame."""
    return groups + 2


def blank(count: int, groups: int) -> Columns:
    return np.full((width(groups), count), NONE, np.int64)


def text_columns(text: Sequence[int], groups: int, first: Sequence[int] | int = NONE) -> Columns:
    """Text ids, and with each a control id."""
    columns = blank(len(text), groups)
    columns[TEXT], columns[FIRST] = text, first
    return columns


def frame_columns(codes: Codes, text: Sequence[int] | NDArray[np.int64]) -> Columns:
    """Frames [n, groups], and with each a text id."""
    columns = blank(*codes.shape)
    columns[TEXT], columns[FIRST:VECTOR] = text, codes.T
    return columns
