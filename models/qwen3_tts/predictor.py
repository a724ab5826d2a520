"""The code predictor: a small transformer that makes the other codes of a frame out of the first."""

from collections.abc import Sequence

import torch
from torch import Tensor

from speechmill.models.common.checkpoint import Reader
from speechmill.models.common.codebooks import FrameWalk
from speechmill.models.common.draws import Draws
from speechmill.models.common.linear import Linear
from speechmill.models.common.sampler import Settings, rank, sample, warped
from speechmill.models.common.transformer import read_qwen_transformer
from speechmill.models.qwen3_tts.config import TalkerConfig
from speechmill.models.qwen3_tts.embedding import Embedding


class Predictor:
    """Each code is read and drawn by tables of its own; they are as wide as the talker."""

    def __init__(
        self, config: TalkerConfig, embedding: Embedding, dtype: torch.dtype, weights: Reader, device: torch.device
    ) -> None:
        shape, talker = config.predictor, config.talker
        self._groups, self._embedding = config.groups, embedding
        self._transformer = read_qwen_transformer(
            weights.at("model"), shape, config.groups, config.predictor_rope_base, dtype, device
        )
        self._heads = [
            Linear.read(weights, f"lm_head.{group}", config.residual_codes, shape.width)
            for group in range(config.groups - 1)
        ]
        self._narrow: Linear | None = None
        if talker.width != shape.width:
            self._narrow = Linear.read(weights, "small_to_mtp_projection", shape.width, talker.width, bias=True)

    def walk(self, hidden: Tensor) -> FrameWalk:
        """A frame begun: `hidden` [rows, talker width] is what its first code was drawn from, after the final norm."""
        return FrameWalk(self._transformer, self._groups, self._project(hidden))

    def logits(self, walk: FrameWalk, group: int, code: Tensor) -> Tensor:
        """Of the codes of `group`, 1 and up, float32 [rows, codes], once the group before it is `code` [rows]."""
        rows = self._project(self._embedding.code(group - 1, code))
        return self._heads[group - 1](walk.step(rows)).float()

    def codes(self, hidden: Tensor, first: Tensor, settings: Settings, draws: Draws) -> Sequence[Tensor]:
        """The codes that follow `first` [rows], [rows] each. The draw of a code has the number of its group."""
        walk, codes = self.walk(hidden), [first]
        for group in range(1, self._groups):
            codes.append(sample(rank(self.logits(walk, group, codes[-1])), settings, draws, group, warped))
        return codes[1:]

    def _project(self, rows: Tensor) -> Tensor:
        return rows if self._narrow is None else self._narrow(rows)
