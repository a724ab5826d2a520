"""Families whose codecs are driven alike, with the small weights of their goldens, and logs of codes for them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from fish_codec_goldens import CHECKPOINT as FISH_CHECKPOINT
from fish_codec_goldens import decoder as fish_decoder
from numpy.typing import NDArray
from qwen_codec_goldens import checkpoint as qwen_checkpoint
from qwen_codec_goldens import decoder as qwen_decoder
from torch import Tensor

from speechmill.models.common.codec.decoder import Decoder
from speechmill.models.common.codec.stage import CodecStage
from speechmill.models.common.pcm import to_s16
from speechmill.models.fish_speech.codec.stages import codec_stage as fish_stage
from speechmill.models.qwen3_tts.codec.stages import codec_stage as qwen_stage
from speechmill.models.stage import Chunk, StageOptions

LIVE = (1, 2, 4, 7)


@dataclass(frozen=True)
class CodecFamily:
    name: str
    checkpoint: Callable[[], Path]
    make: Callable[[StageOptions], CodecStage]
    decoder: Callable[[], Decoder]

    def load(self, live: tuple[int, ...] = LIVE, bulk: int = 0) -> CodecStage:
        """A stage that nobody else has."""
        return self.make(StageOptions(slots=8, live_chunks=live, bulk_chunk=bulk, checkpoint=self.checkpoint()))

    @cache  # noqa: B019 (families are few and live as long as the process)
    def stage(self, live: tuple[int, ...] = LIVE, bulk: int = 0) -> CodecStage:
        return self.load(live, bulk)

    @property
    def frame_samples(self) -> int:
        return self.decoder().frame_samples

    def codes(self, frames: int, seed: int = 0) -> Tensor:
        """Random ones, [frames, codebooks]."""
        random = torch.Generator().manual_seed(seed)
        books = self.decoder().codebooks
        return torch.stack([torch.randint(entries, (frames,), generator=random) for entries in books], 1)

    def heard(self, codes: Tensor) -> NDArray[np.int32]:
        """What they sound like in one call."""
        decoder = self.decoder()
        stream = decoder.streams.open()
        samples = decoder([stream], [codes])[0]
        decoder.streams.close(stream)
        return np.frombuffer(to_s16(samples), "<i2").astype(np.int32)


FISH = CodecFamily("fish_speech", lambda: FISH_CHECKPOINT, fish_stage, fish_decoder)
QWEN = CodecFamily("qwen3_tts", qwen_checkpoint, qwen_stage, qwen_decoder)


def log(codes: Tensor, sizes: list[int] | None = None) -> list[Chunk]:
    """Codes as a log of chunks of these sizes, the last of which takes the rest."""
    chunks, start = [], 0
    for size in [*(sizes or []), len(codes)]:
        end = min(start + size, len(codes))
        piece = codes[start:end].numpy().astype("<u2").tobytes()
        chunks.append(Chunk(start, end, piece, final=end == len(codes)))
        start = end
        if chunks[-1].final:
            break
    return chunks
