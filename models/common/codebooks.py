"""A small transformer that goes through the codes of one frame, each of which depends on those before it."""

import torch
from torch import Tensor

from speechmill.models.common.attention import StepAttention
from speechmill.models.common.transformer import Transformer


class FrameWalk:
    """One frame of each row. Keys and values are gone with it."""

    def __init__(self, transformer: Transformer, positions: int, hidden: Tensor) -> None:
        """`hidden` [rows, width]: what the large transformer made, at position 0 of `positions`."""
        shape = transformer.shape
        self._transformer = transformer
        self._hidden: Tensor | None = hidden
        self._attend = StepAttention(shape.layers, len(hidden), positions, shape.kv_heads, shape.size, hidden)

    def step(self, rows: Tensor) -> Tensor:
        """The next position's rows [rows, width] → what stands there after the final norm [rows, width].

        The hidden state goes in together with the first of them: nothing is read at its own position.
        """
        rows, count = rows[:, None], 1
        if self._hidden is not None:
            rows, count = torch.cat([self._hidden[:, None], rows], dim=1), 2
            self._hidden = None
        positions = self._attend.advance(count)
        made = self._transformer(rows.flatten(0, 1), positions, self._attend)[count - 1 :: count]
        return self._transformer.normed(made)
