"""Makes the layers of causal codecs from a checkpoint, under the names that DAC and its kin give them."""

from torch import Tensor

from speechmill.models.common.carry import Carry
from speechmill.models.common.causal_blocks import ConvNeXt, ResidualUnit, Snake
from speechmill.models.common.checkpoint import Reader
from speechmill.models.common.convolution import CausalConvolution, DepthwiseConvolution, take_kernel

_DILATIONS = (1, 3, 9)


class Builder:
    """Makes the layers of one network, in its order. Families override what they name or store otherwise."""

    UNIT = ("block.0", "block.1", "block.2", "block.3")
    """Names of a residual unit's activation, wide convolution, activation and narrow convolution."""

    def __init__(self, weights: Reader, carry: Carry) -> None:
        self.weights, self.carry = weights, carry

    def snake(self, name: str, channels: int) -> Snake:
        return Snake(self.weights.take(f"{name}.alpha", (1, channels, 1)))

    def convolution(self, name: str, shape: tuple[int, int, int], dilation: int = 1) -> CausalConvolution:
        """`shape`: [out, in, width]."""
        return CausalConvolution(*self._kernel(name, shape, shape[0]), self.carry, dilation)

    def strided(self, name: str, shape: tuple[int, int, int], stride: int) -> CausalConvolution:
        """`shape`: [out, in, width]."""
        return CausalConvolution.strided(*self._kernel(name, shape, shape[0]), self.carry, stride)

    def transposed(self, name: str, shape: tuple[int, int, int], stride: int) -> CausalConvolution:
        """`shape`: [in, out, width]."""
        return CausalConvolution.transposed(*self._kernel(name, shape, shape[1]), self.carry, stride)

    def residual_units(self, name: str, first: int, channels: int) -> list[ResidualUnit]:
        """Three of them, numbered from `first` on."""
        return [self._unit(f"{name}.{first + index}", channels, dilation) for index, dilation in enumerate(_DILATIONS)]

    def _unit(self, name: str, channels: int, dilation: int) -> ResidualUnit:
        first, wide, second, narrow = (f"{name}.{part}" for part in self.UNIT)
        return ResidualUnit(
            self.snake(first, channels),
            self.convolution(wide, (channels, channels, 7), dilation),
            self.snake(second, channels),
            self.convolution(narrow, (channels, channels, 1)),
        )

    def conv_next(self, name: str, channels: int) -> ConvNeXt:
        depthwise = DepthwiseConvolution(*self._kernel(f"{name}.dwconv", (channels, 1, 7), channels), self.carry)
        return ConvNeXt(
            depthwise,
            norm=self.affine(f"{name}.norm", (channels,)),
            up=self.affine(f"{name}.pwconv1", (4 * channels, channels)),
            down=self.affine(f"{name}.pwconv2", (channels, 4 * channels)),
            gamma=self.weights.take(f"{name}.gamma", (channels,)),
        )

    def affine(self, name: str, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Weight of that shape, and bias."""
        return self.weights.take(f"{name}.weight", shape), self.weights.take(f"{name}.bias", shape[:1])

    def _kernel(self, name: str, shape: tuple[int, int, int], outputs: int) -> tuple[Tensor, Tensor]:
        return take_kernel(self.weights, f"{name}.conv", shape), self.weights.take(f"{name}.conv.bias", (outputs,))
