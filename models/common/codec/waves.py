"""From a codec's latent frames to samples: small upsamplings, then blocks of convolutions as in DAC, all causal."""

from dataclasses import dataclass

from torch import Tensor

from speechmill.models.common.carry import Batch
from speechmill.models.common.causal_blocks import ConvNeXt, ResidualUnit, Snake
from speechmill.models.common.codec.builder import Builder
from speechmill.models.common.convolution import CausalConvolution


@dataclass(frozen=True, slots=True)
class WaveShape:
    """Sizes of the network, and where it stands in a checkpoint."""

    inputs: int
    """Channels of a latent frame."""
    channels: int
    """Of the first block; each of the others has half of those before it."""
    upsamplings: tuple[int, ...]
    """Rows that each makes of one, in their order, as `rates` of the blocks."""
    rates: tuple[int, ...]
    upsample: str
    decode: str


class Waves:
    """Latent frames [streams, frames, inputs] → samples [streams, n], not yet bounded."""

    def __init__(self, builder: Builder, shape: WaveShape) -> None:
        self.upsamplings = [
            _Upsampling(builder, f"{shape.upsample}.{index}", shape.inputs, factor)
            for index, factor in enumerate(shape.upsamplings)
        ]
        channels = [shape.channels >> index for index in range(len(shape.rates) + 1)]
        self.enter = builder.convolution(f"{shape.decode}.0", (channels[0], shape.inputs, 7))
        self.blocks = [
            _Block(builder, f"{shape.decode}.{index + 1}.block", (channels[index], channels[index + 1]), rate)
            for index, rate in enumerate(shape.rates)
        ]
        last = len(shape.rates) + 1
        self.snake = builder.snake(f"{shape.decode}.{last}", channels[-1])
        self.leave = builder.convolution(f"{shape.decode}.{last + 1}", (1, channels[-1], 7))

    def __call__(self, rows: Tensor, batch: Batch) -> Tensor:
        for upsampling in self.upsamplings:
            rows = upsampling(rows, batch)
        rows = self.enter(rows, batch)
        for block in self.blocks:
            rows = block(rows, batch)
        return self.leave(self.snake(rows), batch).flatten(1)


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
