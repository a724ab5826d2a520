"""The two transformers: the slow one goes from frame to frame, the fast one through the codebooks of a frame."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as fn

from speechmill.models.common.attention import Attend
from speechmill.models.common.checkpoint import Reader
from speechmill.models.common.codebooks import FrameWalk
from speechmill.models.common.draws import Draws
from speechmill.models.common.engine.model import Codes, Columns, FrameRows, MadeFrames, Memory, Request
from speechmill.models.common.linear import Linear
from speechmill.models.common.paged_kv import KvShape
from speechmill.models.common.rope import Rope, frequencies
from speechmill.models.common.sampler import Settings, penalise, rank, repeats, sample, shifted
from speechmill.models.common.transformer import LayerShape, Transformer, read_llama_layer
from speechmill.models.fish_speech.columns import frame_columns
from speechmill.models.fish_speech.config import TalkerConfig

WINDOW = 10
"""Main tokens among which a repetition is noticed."""
HIGH_TEMPERATURE, HIGH_TOP_P = 1.0, 0.9
"""Settings of the token that is taken in place of one that repeats."""
NORMAL, HIGH, RESIDUAL = 0, 1, 2
"""Numbers of a frame's draws; those of the residual codes follow."""


class Talker:
    """Columns are a token id and the codes under it. Settings: temperature, top_p, top_k, repetition penalty."""

    settings = 4
    beside = 0

    def __init__(
        self, config: TalkerConfig, semantic: int, end: int, dtype: torch.dtype, weights: Reader, device: torch.device
    ) -> None:
        """`semantic`: id of the first semantic token; `end`: of the one that ends an answer."""
        self.config = config
        self.codes, self.width, self.positions = config.codebooks, 1 + config.codebooks, config.positions
        self.kv = KvShape(config.slow.layers, config.slow.kv_heads, config.slow.size, dtype, device)
        self._semantic, self._last = semantic, semantic + config.codebook - 1
        self._read_slow(weights, end, device)
        self._read_fast(weights, device)

    def _read_slow(self, weights: Reader, end: int, device: torch.device) -> None:
        config, width = self.config, self.config.slow.width
        self._embedding = weights.take("embeddings.weight", (config.vocabulary, width))
        books = config.codebooks * config.codebook
        self._code_embedding = weights.take("codebook_embeddings.weight", (books, width))
        self._book_starts = torch.arange(0, books, config.codebook, device=device)
        self.slow = _transformer(config.slow, weights, "", config.positions, config.rope_base, device)
        head = self._embedding if config.tied else weights.take("output.weight", (config.vocabulary, width))
        # The only tokens that may follow, in the order of their ids: no other row of the head is ever read.
        self._head_ids = np.array(sorted([end, *range(self._semantic, self._last + 1)]))
        self._tokens = torch.from_numpy(self._head_ids).to(device)
        self._end = torch.tensor(end, device=device)
        self._head = Linear(head[self._tokens])

    def _read_fast(self, weights: Reader, device: torch.device) -> None:
        config, width = self.config, self.config.fast.width
        self.fast_embedding = weights.take("fast_embeddings.weight", (config.codebook, width))
        self.fast = _transformer(config.fast, weights, "fast_", config.codebooks, config.rope_base, device)
        head = weights.take("fast_output.weight", (config.codebook, width))
        self.fast_head = Linear(head[: config.residual_limit or config.codebook])
        self._project: Linear | None = None
        if config.slow.width != width:
            self._project = Linear.read(weights, "fast_project_in", width, config.slow.width, bias=True)

    def columns(self, request: Request, codes: Codes) -> Columns:
        return frame_columns(codes, self._semantic)

    def memory(self, codes: Codes) -> Memory:
        """The window of main tokens, without the first frame's, and for each token of the head whether it was there."""
        tokens = codes[:, 0].astype(np.int64) + self._semantic
        window = np.concatenate([np.zeros(WINDOW, np.int64), tokens[1:]])[-WINDOW:]
        seen = np.isin(self._head_ids, tokens).astype(np.int64)
        return torch.from_numpy(window[None]), torch.from_numpy(seen[None])

    def prefill(self, columns: Tensor, positions: Tensor, attend: Attend, vectors: Tensor) -> None:
        self.hidden(columns, positions, attend)

    def hidden(self, columns: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """Before the final norm [rows, width]."""
        return self.slow(self.embed(columns), positions, attend)

    def embed(self, columns: Tensor) -> Tensor:
        """columns [rows, 1 + codebooks] → [rows, width]: the token's row, and under semantic tokens the codes' too."""
        token, codes = columns[:, 0], columns[:, 1:]
        rows = fn.embedding(token, self._embedding)
        spoken = ((token >= self._semantic) & (token <= self._last))[:, None]
        with_codes = rows + fn.embedding(codes + self._book_starts, self._code_embedding).sum(1)
        if self.config.scaled:
            with_codes = with_codes / math.sqrt(self.codes + 1)
        return torch.where(spoken, with_codes, rows)

    def logits(self, hidden: Tensor) -> Tensor:
        """Of the tokens that may follow, in the order of `tokens`; `hidden` is before the final norm."""
        return self._head(self.slow.normed(hidden)).float()

    @property
    def tokens(self) -> Tensor:
        """Ids that the head knows, rising."""
        return self._tokens

    def frame(self, rows: FrameRows, attend: Attend) -> MadeFrames:
        hidden = self.hidden(rows.columns, rows.positions, attend)
        temperature, top_p, top_k, penalty = rows.settings.unbind(-1)
        settings = Settings(temperature, top_p, top_k)
        window, seen = rows.memory
        entry = self._main(penalise(self.logits(hidden), seen > 0, penalty), settings, window, rows)
        token = self._tokens[entry]
        first = (token - self._semantic).clamp(0, self.config.codebook - 1)
        codes = torch.stack([first, *self.residual(self.fast_input(hidden), first, settings, rows.draws)], dim=1)
        stored = torch.where((rows.frames > 0)[:, None], shifted(window, token), window)
        return MadeFrames(
            codes=codes,
            ended=token == self._end,
            columns=torch.cat([token[:, None], codes], dim=1),
            memory=(stored, seen.scatter(1, entry[:, None], 1)),
        )

    def _main(self, logits: Tensor, settings: Settings, window: Tensor, rows: FrameRows) -> Tensor:
        """Repetition-aware sampling: entries of the head [rows]. The first frame's token is free to repeat."""
        ranked = rank(logits)
        draws = _ByToken(rows.draws, self._tokens)
        normal = sample(ranked, settings, draws, NORMAL)
        high_settings = Settings(
            torch.full_like(settings.temperature, HIGH_TEMPERATURE),
            torch.full_like(settings.top_p, HIGH_TOP_P),
            settings.top_k,
        )
        high = sample(ranked, high_settings, draws, HIGH)
        token = self._tokens[normal]
        again = repeats(token, window) & (token != self._end) & (rows.frames > 0)
        return torch.where(again, high, normal)

    def fast_input(self, hidden: Tensor) -> Tensor:
        """The slow hidden state as the fast transformer takes it [rows, fast width]."""
        hidden = self.slow.normed(hidden) if self.config.normed else hidden
        return hidden if self._project is None else self._project(hidden)

    def residual(self, hidden: Tensor, first: Tensor, settings: Settings, draws: Draws) -> Sequence[Tensor]:
        """The codes that follow the semantic one `first` [rows], [rows] each."""
        books = Codebooks(self, hidden)
        codes = [first]
        for book in range(1, self.codes):
            codes.append(sample(rank(books.logits(codes[-1])), settings, draws, RESIDUAL + book - 1))
        return codes[1:]


class Codebooks:
    """The fast transformer on its way through one frame of each row."""

    def __init__(self, talker: Talker, hidden: Tensor) -> None:
        """`hidden`: from `Talker.fast_input`."""
        self._talker, self._walk = talker, FrameWalk(talker.fast, talker.codes, hidden)

    def logits(self, code: Tensor) -> Tensor:
        """Of the next codebook's codes, float32 [rows, codes], once the one before it is `code` [rows]."""
        return self._talker.fast_head(self._walk.step(fn.embedding(code, self._talker.fast_embedding))).float()


class _ByToken:
    """Draws named by the token, whatever its place in the head."""

    def __init__(self, draws: Draws, tokens: Tensor) -> None:
        self._draws, self._tokens = draws, tokens

    def __call__(self, draw: int, entries: Tensor) -> Tensor:
        return self._draws(draw, self._tokens[entries])


def _transformer(
    shape: LayerShape, weights: Reader, prefix: str, positions: int, base: float, device: torch.device
) -> Transformer:
    """Its rotary table went through bfloat16 in training, in whichever dtype the model runs."""
    rope = Rope(positions, frequencies(shape.size, base), "interleaved", torch.bfloat16, device)
    layers = [read_llama_layer(weights.at(f"{prefix}layers.{index}"), shape) for index in range(shape.layers)]
    return Transformer(shape, layers, weights.take(f"{prefix}norm.weight", (shape.width,)), rope)
