"""The talker: it goes from frame to frame, while the text runs beside it, and the code predictor completes each."""

import numpy as np
import torch
from torch import Tensor

from speechmill.models.common.attention import Attend
from speechmill.models.common.checkpoint import Reader
from speechmill.models.common.engine.model import Codes, Columns, FrameRows, MadeFrames, Memory, Request
from speechmill.models.common.linear import Linear
from speechmill.models.common.paged_kv import KvShape
from speechmill.models.common.sampler import Settings, penalise, rank, sample, warped
from speechmill.models.common.transformer import read_qwen_transformer
from speechmill.models.qwen3_tts import columns as column
from speechmill.models.qwen3_tts.config import TalkerConfig
from speechmill.models.qwen3_tts.embedding import Embedding
from speechmill.models.qwen3_tts.predictor import Predictor

LEAST_FRAMES = 2
"""Before them a take cannot end."""
FIRST_CODE = 0
"""Number of the draw; the code predictor's follow."""
_PREFIX = "talker."


class Talker:
    """Settings: temperature, top_p, top_k, repetition penalty; then the code predictor's temperature, top_p, top_k."""

    settings = 7

    def __init__(self, config: TalkerConfig, dtype: torch.dtype, weights: Reader, device: torch.device) -> None:
        shape = config.talker
        self.config = config
        self.codes, self.width = config.groups, column.width(config.groups)
        self.positions = self.beside = config.positions
        self.kv = KvShape(shape.layers, shape.kv_heads, shape.size, dtype, device)
        self.embedding = Embedding(config, weights, device)
        self.transformer = read_qwen_transformer(
            weights.at("model"), shape, config.positions, config.rope_base, dtype, device
        )
        # All that may follow: the codes, and the end after them. No other row of the head is ever read.
        self.ids = [*range(config.first_codes), config.codec.eos]
        self._head = Linear(weights.take("codec_head.weight", (config.vocabulary, shape.width))[self.ids])
        self._is_end = torch.tensor([*[False] * config.first_codes, True], device=device)
        self.predictor = Predictor(config, self.embedding, dtype, weights.at("code_predictor"), device)

    def columns(self, request: Request, codes: Codes) -> Columns:
        return column.frame_columns(codes, request.track(len(codes)))

    def memory(self, codes: Codes) -> Memory:
        """For each entry of the head whether it was there."""
        seen = np.isin(self.ids, codes[:, 0]).astype(np.int64)
        return (torch.from_numpy(seen[None]),)

    def prefill(self, columns: Tensor, positions: Tensor, attend: Attend, vectors: Tensor) -> None:
        self.transformer(self.embedding.with_vectors(columns, vectors), positions, attend)

    def frame(self, rows: FrameRows, attend: Attend) -> MadeFrames:
        hidden = self.transformer.normed(self.transformer(self.embedding(rows.columns), rows.positions, attend))
        temperature, top_p, top_k, penalty, *predictor = rows.settings.unbind(-1)
        (seen,) = rows.memory
        logits = self.allowed(self.logits(hidden), seen > 0, rows.frames, penalty)
        entry = sample(rank(logits), Settings(temperature, top_p, top_k), rows.draws, FIRST_CODE, warped)
        ended = entry == self.config.first_codes
        first = entry.where(~ended, 0)
        codes = torch.stack([first, *self.predictor.codes(hidden, first, Settings(*predictor), rows.draws)], dim=1)
        return MadeFrames(
            codes=codes,
            ended=ended,
            columns=torch.cat([rows.beside[:, None], codes, torch.full_like(codes[:, :1], column.NONE)], dim=1),
            memory=(seen.scatter(1, entry[:, None], 1),),
        )

    def logits(self, hidden: Tensor) -> Tensor:
        """Of `ids`, float32 [rows, ids]; `hidden` [rows, width] is after the final norm."""
        return self._head(hidden).float()

    def allowed(self, logits: Tensor, seen: Tensor, frames: Tensor, penalty: Tensor) -> Tensor:
        """Logits [rows, ids] with those that were `seen` made less likely by `penalty`, and no end too early."""
        early = (frames < LEAST_FRAMES)[:, None] & self._is_end
        return penalise(logits, seen, penalty).masked_fill(early, float("-inf"))


def internal_name(key: str) -> str | None:
    """Of a stored tensor; None for one of the speaker encoder."""
    return key.removeprefix(_PREFIX) if key.startswith(_PREFIX) else None
