"""Causal convolutions over streams that arrive in chunks: plain, dilated, strided, transposed and depthwise.

All but the depthwise one are the same layer. Rows of a strided convolution are first joined, as many as its stride,
and those of a transposed one are made side by side and then cut apart; what is left in the middle is a convolution of
stride 1 over rows [streams, positions, channels].
"""

import torch
from torch import Tensor
from torch.nn import functional as fn

from speechmill.models.common.carry import Batch, Carry
from speechmill.models.common.checkpoint import Reader, Shape
from speechmill.models.common.linear import Linear

_FEW_ROWS = 64
"""Rows per frame below which a convolution is one product over unfolded rows."""


class CausalConvolution:
    """y[t] = bias + Σ_i W_i · x[t - (width - 1 - i)·dilation].

    Before a stream's beginning there are zeros, or its first row again and again where `repeats` says so.
    Where rows are few and channels many, on a CPU the product with packed weights is up to five times as fast as
    `conv2d`, which rearranges the weights in each call. Where rows are many, unfolding them costs more than that.
    """

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor | None,
        carry: Carry,
        dilation: int = 1,
        join: int = 1,
        cut: int = 1,
        repeats: bool = False,
    ) -> None:
        """`weight`: [cut·out, join·in, width], for rows that are joined before and cut apart after; `bias`: [cut·out].

        Raises ValueError where the rows of a frame cannot be joined.
        """
        if carry.rate % join:
            raise ValueError(f"{carry.rate} rows per frame cannot be joined by {join}")
        channels, self.width = weight.shape[1:]
        reach = (self.width - 1) * dilation
        self.dilation, self.join, self.cut, self.repeats = dilation, join, cut, repeats
        carry.rate //= join
        self.convolve: Linear | _Kernel
        if self.width == 1 or carry.rate < _FEW_ROWS:
            self.convolve = Linear(weight.transpose(1, 2).flatten(1), bias)
        else:
            self.convolve = _Kernel(weight, bias, dilation)
        self.part = carry.reserve(reach, channels) if reach else None
        carry.rate *= cut

    @classmethod
    def strided(
        cls, weight: Tensor, bias: Tensor | None, carry: Carry, stride: int, repeats: bool = False
    ) -> "CausalConvolution":
        """`weight`: [out, in, k]. Answers one row for `stride` rows; sees k - stride rows before them."""
        out, channels, width = weight.shape
        # taps in front that are zero make the width a multiple of the stride
        taps = fn.pad(weight, (-width % stride, 0)).view(out, channels, -1, stride)
        joined = taps.permute(0, 3, 1, 2).reshape(out, stride * channels, -1)
        return cls(joined, bias, carry, join=stride, repeats=repeats)

    @classmethod
    def transposed(cls, weight: Tensor, bias: Tensor, carry: Carry, stride: int) -> "CausalConvolution":
        """`weight`: [in, out, k]. Answers `stride` rows for each row: the full result but its last k - stride rows."""
        channels, out, width = weight.shape
        taps = fn.pad(weight, (0, -width % stride)).view(channels, out, -1, stride).flip(2)
        weight = taps.permute(3, 1, 0, 2).reshape(stride * out, channels, -1)
        return cls(weight, bias.repeat(stride), carry, cut=stride)

    def __call__(self, rows: Tensor, batch: Batch) -> Tensor:
        """[streams, n, in] → [streams, n / join · cut, out]."""
        streams, count = len(rows), rows.shape[1] // self.join
        wide = rows.reshape(streams, count, -1)
        if self.part is not None:
            if self.repeats:
                batch.begin(self.part, rows[:, :1].repeat(1, 1, self.join))
            wide = batch.extend(self.part, wide)
        if isinstance(self.convolve, Linear):
            answer = self.convolve(windows(wide, self.width, self.dilation).reshape(streams * count, -1))
        else:
            answer = self.convolve(wide)
        return answer.view(streams, count * self.cut, -1)


class _Kernel:
    """A convolution without padding as an image of height 1, channels last, which rows are without a copy."""

    def __init__(self, weight: Tensor, bias: Tensor | None, dilation: int) -> None:
        self.weight = weight[:, :, None].contiguous(memory_format=torch.channels_last)
        self.bias, self.dilation = bias, dilation

    def __call__(self, wide: Tensor) -> Tensor:
        """[streams, n + (width - 1)·dilation, in] → [streams, n, out]."""
        image = wide[:, None].permute(0, 3, 1, 2)
        answer = fn.conv2d(image, self.weight, self.bias, dilation=(1, self.dilation))
        return answer.permute(0, 2, 3, 1)[:, 0].contiguous()


class DepthwiseConvolution:
    """The causal convolution of each channel with taps of its own."""

    def __init__(self, weight: Tensor, bias: Tensor, carry: Carry) -> None:
        """`weight`: [channels, 1, width]."""
        channels, _, self.width = weight.shape
        self.taps = weight[:, 0].T.contiguous()
        self.bias = bias
        self.part = carry.reserve(self.width - 1, channels)

    def __call__(self, rows: Tensor, batch: Batch) -> Tensor:
        """[streams, n, channels] → the same shape."""
        mixed = windows(batch.extend(self.part, rows), self.width) * self.taps
        return mixed.sum(2).add_(self.bias)


def windows(wide: Tensor, width: int, dilation: int = 1) -> Tensor:
    """[streams, n + (width - 1)·dilation, channels] → [streams, n, width, channels], a view of contiguous rows."""
    streams, positions, channels = wide.shape
    shape = (streams, positions - (width - 1) * dilation, width, channels)
    return wide.contiguous().as_strided(shape, (positions * channels, channels, dilation * channels, 1))


def take_kernel(weights: Reader, name: str, shape: Shape) -> Tensor:
    """A convolution's weight: stored as such, or with weight norm (arXiv:1602.07868) in either spelling of PyTorch.

    w = g · v / ‖v‖, with the norm over all axes but the first, which for transposed convolutions is the input channel.
    """
    gains = shape[0], *[1] * (len(shape) - 1)
    for gain, direction in (
        (f"{name}.weight_g", f"{name}.weight_v"),
        (f"{name}.parametrizations.weight.original0", f"{name}.parametrizations.weight.original1"),
    ):
        if weights.has(gain):
            vectors = weights.take(direction, shape)
            lengths: Tensor = torch.linalg.vector_norm(vectors.flatten(1), dim=1)
            return weights.take(gain, gains) * vectors / lengths.view(gains)
    return weights.take(f"{name}.weight", shape)
