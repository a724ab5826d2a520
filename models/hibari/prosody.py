"""Stage 0's network: how long each phoneme lasts, and the pitch and energy of each frame."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as fn

from speechmill.models.common.streaming import pad_rows, unfold_rows
from speechmill.models.hibari.codes import FRAMES_PER_STEP, Piece
from speechmill.models.hibari.layers import Block, Linear, TextEncoder

_DILATIONS = (1, 2, 4, 8, 1, 2)
_LONGEST_STEPS = 255
"""Durations travel as bytes; 6.4 s for one phoneme is far beyond what the network says."""


class Prosody:
    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        self.text = TextEncoder(weights, "pn.text", loops=6)
        self.spread, self.duration = Linear.named(weights, "pn.dur.0"), Linear.named(weights, "pn.dur.2")
        self.enter, self.leave = Linear.named(weights, "pn.pro_in"), Linear.named(weights, "pn.pro_out")
        self.blocks = [Block(weights, f"pn.pro.{index}", dilation) for index, dilation in enumerate(_DILATIONS)]

    @torch.inference_mode()
    def __call__(self, ids: Sequence[int], speed: float) -> Piece:
        """Phoneme ids, zeros at both ends → everything that the decoder needs."""
        text = self.text(torch.tensor(ids))
        durations = self._durations(text, speed)
        rows = self.enter(text).repeat_interleave(durations, 0)  # one row per step
        for block in self.blocks:
            rows = block(rows)
        # Per step two values of pitch, then two of energy: one for each of its frames.
        f0, energy = self.leave(rows).view(-1, 2, FRAMES_PER_STEP).transpose(0, 1).reshape(2, -1)
        return Piece(
            np.array(ids, np.uint8),
            durations.numpy().astype(np.uint8),
            (100 * f0).numpy(),
            (5 * energy).numpy(),
        )

    def _durations(self, text: Tensor, speed: float) -> Tensor:
        """[length, channels] → steps per phoneme, [length] integers."""
        hidden = fn.gelu(self.spread(unfold_rows(pad_rows(text, 1), 3)))
        steps = self.duration(hidden)[:, 0].expm1() / speed
        return steps.round().clamp(1, _LONGEST_STEPS).long()
