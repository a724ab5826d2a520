"""Codes → audio: a windowed transformer, two small upsamplings and a decoder of convolutions, all of them causal."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from speechmill.models.common.carry import Batch, Carry, Streams
from speechmill.models.common.causal_blocks import ConvNeXt, ResidualUnit, Snake
from speechmill.models.common.checkpoint import Reader
from speechmill.models.common.convolution import CausalConvolution
from speechmill.models.common.rvq import CodeVectors
from speechmill.models.fish_speech.codec.config import CodecConfig
from speechmill.models.fish_speech.codec.quantizer import code_vectors
from speechmill.models.fish_speech.codec.weights import Builder


class Decoder:
    """Frames of codes of several streams → their samples. Streams are begun and ended with `streams`."""

    def __init__(self, weights: Reader, config: CodecConfig) -> None:
        carry = Carry()
        builder = Builder(weights, carry)
        quantizer = config.quantizer
        self.frame_samples = config.frame_samples
        self.vectors: CodeVectors = code_vectors(weights, quantizer)
        self.post = builder.transformer(
            "quantizer.post_module", quantizer.transformer.config, quantizer.transformer.window_size
        )
        self.post_reach = math.ceil(carry.reach)
        """Frames before the one at hand that a frame behind the transformer depends on."""
        self.upsamplings = [
            _Upsampling(builder, f"quantizer.upsample.{index}", quantizer.input_dim, factor)
            for index, factor in enumerate(reversed(quantizer.downsample_factor))
        ]
        channels = [config.decoder_dim >> index for index in range(len(config.decoder_rates) + 1)]
        self.enter = builder.convolution("decoder.model.0", (channels[0], quantizer.input_dim, 7))
        self.blocks = [
            _Block(builder, f"decoder.model.{index + 1}.block", (channels[index], channels[index + 1]), rate)
            for index, rate in enumerate(config.decoder_rates)
        ]
        last = len(config.decoder_rates) + 1
        self.snake = builder.snake(f"decoder.model.{last}", channels[-1])
        self.leave = builder.convolution(f"decoder.model.{last + 1}", (1, channels[-1], 7))
        self.reach = math.ceil(carry.reach - self.post_reach)
        """The same between the transformer and the samples."""
        self.streams = Streams(carry, self.vectors.tables.device)

    @torch.inference_mode()
    def __call__(self, streams: Sequence[int], codes: Sequence[Tensor]) -> list[Tensor]:
        """The next frames of each stream, codes integers [n, codebooks] → samples [n · frame_samples] float32."""
        batch, rows = self._enter(streams, codes)
        for upsampling in self.upsamplings:
            rows = upsampling(rows, batch)
        rows = self.enter(rows, batch)
        for block in self.blocks:
            rows = block(rows, batch)
        samples = self.leave(self.snake(rows), batch).flatten(1).tanh_()
        return [line[: len(part) * self.frame_samples] for line, part in zip(samples, codes, strict=True)]

    @torch.inference_mode()
    def prepare(self, streams: Sequence[int], codes: Sequence[Tensor]) -> None:
        """Moves streams on without making samples, to where a stream is resumed.

        What follows is exact when it begins `post_reach` frames after the stream's origin, and after `reach` more.
        """
        self._enter(streams, codes)

    def _enter(self, streams: Sequence[int], codes: Sequence[Tensor]) -> tuple[Batch, Tensor]:
        batch = self.streams.advance(streams, [len(part) for part in codes])
        padded = torch.nn.utils.rnn.pad_sequence(list(codes), batch_first=True)
        return batch, self.post(self.vectors(padded.to(self.vectors.tables.device)), batch)


class _Upsampling:
    def __init__(self, builder: Builder, name: str, channels: int, factor: int) -> None:
        self.widen: CausalConvolution = builder.transposed(f"{name}.0", (channels, channels, factor), factor)
        self.mix: ConvNeXt = builder.conv_next(f"{name}.1", channels)

    def __call__(self, rows: Tensor, batch: Batch) -> Tensor:
        return self.mix(self.widen(rows, batch), batch)


class _Block:
    def __init__(self, builder: Builder, name: str, channels: tuple[int, int], rate: int) -> None:
        inputs, outputs = channels
        self.snake: Snake = builder.snake(f"{name}.0", inputs)
        self.widen: CausalConvolution = builder.transposed(f"{name}.1", (inputs, outputs, 2 * rate), rate)
        self.units: list[ResidualUnit] = builder.residual_units(name, 2, outputs)

    def __call__(self, rows: Tensor, batch: Batch) -> Tensor:
        rows = self.widen(self.snake(rows), batch)
        for unit in self.units:
            rows = unit(rows, batch)
        return rows
