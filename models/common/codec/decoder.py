"""Codes → samples, for several streams: what a family makes of its codes, and waves behind it. All of it is causal."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from speechmill.models.common.carry import Batch, Streams
from speechmill.models.common.codec.builder import Builder
from speechmill.models.common.codec.waves import Waves, WaveShape

POSITIONS = 1 << 16
"""Frames that a stream may have: more than 50 minutes of any of them."""


class Decoder(ABC):
    """Frames of codes of several streams → their samples. Streams are begun and ended with `streams`."""

    codebooks: tuple[int, ...]
    """Entries of each codebook."""

    def __init__(self, builder: Builder, shape: WaveShape, device: torch.device) -> None:
        """`builder` has made the layers of `latents` before, so that what they reach is known."""
        self.device = device
        self.frame_samples = math.prod(shape.upsamplings) * math.prod(shape.rates)
        self.latent_reach = math.ceil(builder.carry.reach)
        """Frames before the one at hand that a latent frame depends on."""
        self.channels = shape.channels >> len(shape.rates)
        self.waves = Waves(builder, shape)
        self.wave_reach = math.ceil(builder.carry.reach - self.latent_reach)
        """The same between latent frames and samples."""
        self.streams = Streams(builder.carry, device)

    @abstractmethod
    def latents(self, codes: Tensor, batch: Batch) -> Tensor:
        """[streams, frames, codebooks] int64 → latent frames [streams, frames, channels]."""

    @abstractmethod
    def bound(self, samples: Tensor) -> Tensor:
        """Samples brought between -1 and 1; may overwrite its argument."""

    @torch.inference_mode()
    def __call__(self, streams: Sequence[int], codes: Sequence[Tensor]) -> list[Tensor]:
        """The next frames of each stream, codes int64 [n, codebooks] → samples [n · frame_samples] float32.

        Both are in the CPU's memory.
        """
        batch, rows = self._enter(streams, codes)
        samples = self.bound(self.waves(rows, batch)).cpu()
        return [line[: len(part) * self.frame_samples] for line, part in zip(samples, codes, strict=True)]

    @torch.inference_mode()
    def prepare(self, streams: Sequence[int], codes: Sequence[Tensor]) -> None:
        """Moves streams on without making samples, to where a stream is resumed.

        What follows is exact when it begins `latent_reach` frames after the stream's origin, and after `wave_reach`
        more.
        """
        self._enter(streams, codes)

    def _enter(self, streams: Sequence[int], codes: Sequence[Tensor]) -> tuple[Batch, Tensor]:
        batch = self.streams.advance(streams, [len(part) for part in codes])
        padded = torch.nn.utils.rnn.pad_sequence(list(codes), batch_first=True)
        return batch, self.latents(padded.to(self.device), batch)
