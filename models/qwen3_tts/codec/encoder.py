"""Audio → codes, as Mimi does it (arXiv:2410.00037): causal convolutions, a transformer, two residual quantisers.

A recording may end within a frame. Behind its end each layer sees silence, not what the layers before make of silence,
so rows behind the end are kept at zero wherever a convolution with a stride would mix them in.
"""

from collections.abc import Sequence
from itertools import count

import torch
from torch import Tensor
from torch.nn import functional as fn

from speechmill.models.common.carry import Batch, Carry, Streams
from speechmill.models.common.checkpoint import Reader
from speechmill.models.common.convolution import CausalConvolution
from speechmill.models.common.rvq import ResidualQuantizer
from speechmill.models.qwen3_tts.codec.config import DOWNSAMPLING, EncoderConfig
from speechmill.models.qwen3_tts.codec.weights import Builder, codebook


class Encoder:
    """Samples of several streams, some frames at a time → their codes. Streams are begun and ended with `streams`."""

    def __init__(self, weights: Reader, config: EncoderConfig) -> None:
        weights, carry = weights.at("encoder"), Carry(config.frame_samples)
        builder, number = Builder(weights, carry), count()
        self.frame_samples, self.channels = config.frame_samples, config.filters
        channels = config.filters
        self.enter = builder.convolution(f"encoder.layers.{next(number)}", (channels, 1, config.kernel))
        self.blocks: list[_Block] = []
        for rate in config.rates:
            self.blocks.append(_Block(builder, number, config, channels, rate))
            channels *= 2
        next(number)  # an activation
        self.leave = builder.convolution(f"encoder.layers.{next(number)}", (config.width, channels, config.last_kernel))
        self.transformer = builder.transformer("encoder_transformer", config.transformer, gated=False)
        kernel = weights.take("downsample.conv.weight", (config.width, config.width, 2 * DOWNSAMPLING))
        self.downsample = CausalConvolution.strided(kernel, None, carry, DOWNSAMPLING, repeats=True)
        self.semantic = _quantizer(weights.at("quantizer.semantic_residual_vector_quantizer"), config, 1)
        acoustic = weights.at("quantizer.acoustic_residual_vector_quantizer")
        self.acoustic = _quantizer(acoustic, config, config.codebooks - 1)
        self.device = kernel.device
        self.streams = Streams(carry, self.device)

    @torch.inference_mode()
    def __call__(self, streams: Sequence[int], samples: Sequence[Tensor]) -> list[Tensor]:
        """The next samples of each stream, [n] float32 → codes int64 [ceil(n / frame_samples), codebooks].

        Both are in the CPU's memory. Only a stream's last piece may end within a frame.
        """
        frames = [-(-len(part) // self.frame_samples) for part in samples]
        batch, ends = self.streams.advance(streams, frames), Ends(samples, self.frame_samples, self.device)
        padded = torch.nn.utils.rnn.pad_sequence(list(samples), batch_first=True)
        padded = fn.pad(padded, (0, max(frames) * self.frame_samples - padded.shape[1]))
        rows = self.transformer(self.convolve(padded.to(self.device)[:, :, None], batch, ends), batch)
        rows = self.downsample(ends.repeated(rows), batch)
        # both quantisers see the same rows, not one what the other left
        codes = torch.cat([self.semantic(rows), self.acoustic(rows)], 2).cpu()
        return [line[:length] for line, length in zip(codes, frames, strict=True)]

    def convolve(self, rows: Tensor, batch: Batch, ends: "Ends") -> Tensor:
        """Samples [streams, n, 1] → what the transformer sees."""
        rows = self.enter(rows, batch)
        for block in self.blocks:
            rows = block(rows, batch, ends)
        return self.leave(fn.elu(rows), batch)


class Ends:
    """Where the pieces of a batch end, some of them within a frame."""

    def __init__(self, samples: Sequence[Tensor], frame_samples: int, device: torch.device) -> None:
        lengths = [len(part) for part in samples]
        self._samples = -(-max(lengths) // frame_samples) * frame_samples
        partial = any(length % frame_samples for length in lengths)
        self._lengths = torch.tensor(lengths, device=device) if partial else None

    def silenced(self, rows: Tensor) -> Tensor:
        """[streams, n, channels] with zeros behind each end."""
        if self._lengths is None:
            return rows
        index = torch.arange(rows.shape[1], device=rows.device)
        return rows * (index < self._counts(rows)[:, None])[:, :, None]

    def repeated(self, rows: Tensor) -> Tensor:
        """[streams, n, channels] with each one's last row again and again behind its end."""
        if self._lengths is None:
            return rows
        index = torch.arange(rows.shape[1], device=rows.device).minimum(self._counts(rows)[:, None] - 1)
        return rows.take_along_dim(index[:, :, None], 1)

    def _counts(self, rows: Tensor) -> Tensor:
        """Rows of each stream, the one within which it ends included."""
        assert self._lengths is not None
        per_row = self._samples // rows.shape[1]
        return (self._lengths + per_row - 1) // per_row


class _Block:
    """Residual units, then a convolution with a stride."""

    def __init__(self, builder: Builder, number: "count[int]", config: EncoderConfig, channels: int, rate: int) -> None:
        self.units = [
            _Unit(builder, f"encoder.layers.{next(number)}.block", config, channels, config.dilation_growth**index)
            for index in range(config.residual_layers)
        ]
        next(number)  # an activation
        self.narrow = builder.strided(f"encoder.layers.{next(number)}", (2 * channels, channels, 2 * rate), rate)

    def __call__(self, rows: Tensor, batch: Batch, ends: Ends) -> Tensor:
        for unit in self.units:
            rows = unit(rows, batch)
        return self.narrow(ends.silenced(fn.elu(rows)), batch)


class _Unit:
    """x + W·elu(wide(elu(x))), with fewer channels in the middle."""

    def __init__(self, builder: Builder, name: str, config: EncoderConfig, channels: int, dilation: int) -> None:
        inner = channels // config.compress
        self.wide = builder.convolution(f"{name}.1", (inner, channels, config.residual_kernel), dilation)
        self.narrow = builder.convolution(f"{name}.3", (channels, inner, 1))

    def __call__(self, rows: Tensor, batch: Batch) -> Tensor:
        return self.narrow(fn.elu(self.wide(fn.elu(rows), batch)), batch).add_(rows)


def _quantizer(weights: Reader, config: EncoderConfig, books: int) -> ResidualQuantizer:
    project = weights.take("input_proj.weight", (config.code_width, config.width, 1))[:, :, 0]
    layers = [weights.at(f"layers.{index}.codebook") for index in range(books)]
    codebooks = [codebook(layer, "embed_sum", config.entries, config.code_width) for layer in layers]
    return ResidualQuantizer(project, codebooks)
