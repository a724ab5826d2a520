"""Audio → codes: a causal encoder of convolutions with a transformer at its end, downsampling, a quantiser."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as fn

from speechmill.models.common.carry import Batch, Carry, Streams
from speechmill.models.common.causal_blocks import ConvNeXt, ResidualUnit, Snake
from speechmill.models.common.checkpoint import Reader
from speechmill.models.common.convolution import CausalConvolution
from speechmill.models.common.rvq import CodeVectors
from speechmill.models.common.window_transformer import WindowTransformer
from speechmill.models.fish_speech.codec.config import ENCODER_WINDOW, CodecConfig
from speechmill.models.fish_speech.codec.quantizer import code_vectors, searches
from speechmill.models.fish_speech.codec.weights import Builder


class Encoder:
    """Samples of several streams, some frames at a time → their codes. Streams are begun and ended with `streams`."""

    def __init__(self, weights: Reader, config: CodecConfig) -> None:
        carry = Carry(config.frame_samples)
        builder = Builder(weights, carry)
        quantizer = config.quantizer
        self.frame_samples, self.channels = config.frame_samples, config.encoder_dim
        self.enter: CausalConvolution = builder.convolution("encoder.block.0", (config.encoder_dim, 1, 7))
        self.blocks = [_Block(builder, config, index) for index in range(len(config.encoder_rates))]
        last, channels = len(config.encoder_rates) + 1, config.encoder_dim << len(config.encoder_rates)
        self.snake: Snake = builder.snake(f"encoder.block.{last}", channels)
        self.leave = builder.convolution(f"encoder.block.{last + 1}", (quantizer.input_dim, channels, 3))
        self.downsamplings = [
            _Downsampling(builder, f"quantizer.downsample.{index}", quantizer.input_dim, factor)
            for index, factor in enumerate(quantizer.downsample_factor)
        ]
        self.pre: WindowTransformer = builder.transformer(
            "quantizer.pre_module", quantizer.transformer.config, quantizer.transformer.window_size
        )
        self.vectors: CodeVectors = code_vectors(weights, quantizer)
        self.searches = searches(weights, quantizer)
        self.device = self.vectors.tables.device
        self.streams = Streams(carry, self.device)

    @torch.inference_mode()
    def __call__(self, streams: Sequence[int], samples: Sequence[Tensor]) -> list[Tensor]:
        """The next samples of each stream, [n] float32 → codes int64 [ceil(n / frame_samples), codebooks].

        Both are in the CPU's memory. Only a stream's last piece may end within a frame; silence fills it.
        """
        frames = [-(-len(part) // self.frame_samples) for part in samples]
        batch = self.streams.advance(streams, frames)
        padded = torch.nn.utils.rnn.pad_sequence(list(samples), batch_first=True)
        padded = fn.pad(padded, (0, max(frames) * self.frame_samples - padded.shape[1]))
        rows = self.enter(padded.to(self.device)[:, :, None], batch)
        for block in self.blocks:
            rows = block(rows, batch)
        rows = self.leave(self.snake(rows), batch)
        for downsampling in self.downsamplings:
            rows = downsampling(rows, batch)
        codes = self.vectors.encode(self.pre(rows, batch), self.searches).cpu()
        return [line[:count] for line, count in zip(codes, frames, strict=True)]


class _Block:
    def __init__(self, builder: Builder, config: CodecConfig, index: int) -> None:
        name = f"encoder.block.{index + 1}.block"
        inputs, rate = config.encoder_dim << index, config.encoder_rates[index]
        self.units: list[ResidualUnit] = builder.residual_units(name, 0, inputs)
        self.snake: Snake = builder.snake(f"{name}.3", inputs)
        self.narrow: CausalConvolution = builder.strided(f"{name}.4", (2 * inputs, inputs, 2 * rate), rate)
        self.transformer: WindowTransformer | None = None
        if config.encoder_transformer_layers[index]:
            self.transformer = builder.transformer(f"{name}.5", config.encoder_transformer(index), ENCODER_WINDOW)

    def __call__(self, rows: Tensor, batch: Batch) -> Tensor:
        for unit in self.units:
            rows = unit(rows, batch)
        rows = self.narrow(self.snake(rows), batch)
        return rows if self.transformer is None else self.transformer(rows, batch)


class _Downsampling:
    def __init__(self, builder: Builder, name: str, channels: int, factor: int) -> None:
        self.narrow: CausalConvolution = builder.strided(f"{name}.0", (channels, channels, factor), factor)
        self.mix: ConvNeXt = builder.conv_next(f"{name}.1", channels)

    def __call__(self, rows: Tensor, batch: Batch) -> Tensor:
        return self.mix(self.narrow(rows, batch), batch)
