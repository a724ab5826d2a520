"""What goes into the talker: the sum of text, codes and vectors of each column."""

import torch
from torch import Tensor
from torch.nn import functional as fn

from speechmill.models.common.checkpoint import Reader
from speechmill.models.common.linear import Linear
from speechmill.models.qwen3_tts.columns import FIRST, NONE, TEXT, VECTOR
from speechmill.models.qwen3_tts.config import TalkerConfig

_PIECE = 4096
"""Rows of the text table that are projected at once."""


class Embedding:
    """Tables whose last row is zero, so that NONE adds nothing."""

    def __init__(self, config: TalkerConfig, weights: Reader, device: torch.device) -> None:
        self.text = _project_text(config, weights)
        width = config.talker.width
        sizes = [config.vocabulary, *[config.residual_codes] * (config.groups - 1)]
        residual = [f"code_predictor.model.codec_embedding.{group}" for group in range(config.groups - 1)]
        names = ["model.codec_embedding", *residual]
        tables = [weights.take(f"{name}.weight", (size, width)) for name, size in zip(names, sizes, strict=True)]
        self._codes = torch.cat([*tables, tables[0].new_zeros(1, width)])
        self._starts = [sum(sizes[:group]) for group in range(config.groups)]
        self._offsets = torch.tensor(self._starts, device=device)

    def __call__(self, columns: Tensor) -> Tensor:
        """Columns [rows, width] without their vectors → [rows, talker width]."""
        codes = columns[:, FIRST:VECTOR]
        places = torch.where(codes == NONE, NONE, codes + self._offsets)
        return self._codes[places].sum(1) + self.text[columns[:, TEXT]]

    def with_vectors(self, columns: Tensor, vectors: Tensor) -> Tensor:
        """The same with `vectors` [n, talker width], which are in float32."""
        rows = self(columns)
        if not len(vectors):
            return rows
        return rows + torch.cat([vectors.to(rows.dtype), rows.new_zeros(1, rows.shape[1])])[columns[:, VECTOR]]

    def code(self, group: int, codes: Tensor) -> Tensor:
        """Codes [rows] of one group alone → [rows, talker width]."""
        return fn.embedding(codes + self._starts[group], self._codes)


def _project_text(config: TalkerConfig, weights: Reader) -> Tensor:
    """The text table as the talker takes it [text vocabulary + 1, talker width]: each row is used as often as read."""
    inner, outer = config.text_width, config.talker.width
    table = weights.take("model.text_embedding.weight", (config.text_vocabulary, inner))
    first = Linear.read(weights, "text_projection.linear_fc1", inner, inner, bias=True)
    second = Linear.read(weights, "text_projection.linear_fc2", outer, inner, bias=True)
    projected = table.new_zeros(len(table) + 1, outer)
    for start in range(0, len(table), _PIECE):
        rows = table[start : start + _PIECE]
        projected[start : start + len(rows)] = second(fn.silu(first(rows)))
    return projected
