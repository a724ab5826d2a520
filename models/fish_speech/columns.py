"""What a position of the slow transformer is made of: a token id, and under semantic tokens the codes of a frame."""

import numpy as np

from speechmill.models.common.engine.model import Codes, Columns


def frame_columns(codes: Codes, semantic: int) -> Columns:
    """Frames [n, codebooks] → [1 + codebooks, n]; `semantic`: id of the first semantic token."""
    rows = codes.T.astype(np.int64)
    return np.concatenate([rows[:1] + semantic, rows])
