"""Stage 1's network: phonemes with their prosody → the five spectral parts of each frame."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional as fn

from speechmill.models.common.streaming import Lanes, Stream, unfold_rows
from speechmill.models.hibari.codes import FRAMES_PER_STEP, Piece
from speechmill.models.hibari.layers import Block, Linear, Norm, TextEncoder

BINS = 601
_REACH, _WIDTH = 3, 7
_LAYERS = 8
CONTEXT = _REACH * (1 + _LAYERS)
"""Frames that the network sees on either side."""
_PARTS_IN_HEAD = ("lh", "theta", "ln", "lr", "phi")
PARTS = ("lh", "ln", "lr", "theta", "phi")
"""Order in which the parts come out: magnitudes beside each other, then angles."""


class Decoder:
    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        self.text = TextEncoder(weights, "m.text", loops=4)
        enter = weights["m.dec_in.weight"]  # [out, in, width]
        self.enter_weight, self.enter_bias = enter.transpose(1, 2).flatten(1), weights["m.dec_in.bias"]
        self.channels = [enter.shape[1]] + [enter.shape[0]] * _LAYERS
        self.blocks = [Block(weights, f"m.dec.{index}") for index in range(_LAYERS)]
        self.norm, self.head = Norm(weights, "m.dec_norm"), Linear(weights, "m.head")
        order = [_PARTS_IN_HEAD.index(part) for part in PARTS]
        self.head.weight = self.head.weight.view(len(PARTS), BINS, -1)[order].flatten(0, 1)
        self.head.bias = self.head.bias.view(len(PARTS), BINS)[order].flatten()

    @torch.inference_mode()
    def features(self, piece: Piece) -> Tensor:
        """What the network reads: text rows with ln(1 + f0)/5 and energy/5 beside them, [frames, 130]."""
        text = self.text(torch.from_numpy(piece.ids.astype("int64")))
        rows = text.repeat_interleave(torch.from_numpy(piece.durations.astype("int64")) * FRAMES_PER_STEP, 0)
        pitch, energy = torch.from_numpy(piece.f0), torch.from_numpy(piece.energy)
        return torch.cat([rows, pitch.relu().log1p()[:, None] / 5, energy[:, None] / 5], 1)

    def stream(self) -> Stream:
        return Stream.start(self.channels, _REACH)

    @torch.inference_mode()
    def __call__(self, streams: Sequence[Stream], features: Sequence[Tensor]) -> list[Tensor]:
        """The next feature rows of each stream → per stream the rows that are now certain, [rows, 5·601].

        A stream answers `CONTEXT` rows late until it ends.
        """
        lanes = Lanes(streams, features, _REACH)
        columns = lanes.valid(unfold_rows(lanes.widen(0), _WIDTH))
        lanes.rows = fn.linear(columns, self.enter_weight, self.enter_bias)
        for layer, block in enumerate(self.blocks, start=1):
            wide = lanes.widen(layer)
            lanes.rows = block.mix(lanes.valid(block.convolve(wide)), lanes.valid(wide[_REACH:-_REACH]))
        return list(torch.split(self.head(self.norm(lanes.rows)), lanes.lengths))
