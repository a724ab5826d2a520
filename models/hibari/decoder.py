"""Stage 1's network: phonemes with their prosody → the five spectral parts of each frame."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

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
        self.enter = Linear.named(weights, "m.dec_in")
        self.channels = [weights["m.dec_in.weight"].shape[1]] + [len(self.enter.bias)] * _LAYERS
        self.blocks = [Block(weights, f"m.dec.{index}") for index in range(_LAYERS)]
        self.norm = Norm(weights, "m.dec_norm")
        order = [_PARTS_IN_HEAD.index(part) for part in PARTS]
        weight, bias = (weights[f"m.head.{kind}"].view(len(PARTS), BINS, -1)[order] for kind in ("weight", "bias"))
        self.head = Linear(weight.flatten(0, 1), bias.flatten())

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
        lanes.rows = self.enter(lanes.valid(unfold_rows(lanes.widen(0), _WIDTH)))
        for layer, block in enumerate(self.blocks, start=1):
            wide = lanes.widen(layer)
            lanes.rows = block.mix(lanes.valid(block.convolve(wide)), lanes.valid(wide[_REACH:-_REACH]))
        return list(torch.split(self.head(self.norm(lanes.rows)), lanes.lengths))
