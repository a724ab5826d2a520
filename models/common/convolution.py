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

_TYPICAL_ROWS = 64
"""For which oneDNN lays packed weights out; they serve any number."""


class CausalConvolution:
    """y[t] = bias + Σ_i W_i · x[t - (width - 1 - i)·dilation]; before a stream's beginning there are zeros.

    On a CPU the weights are packed once: oneDNN rearranges plain ones in each call, which for a few rows takes longer
    than the products.
    """

    def __init__(
        self, weight: Tensor, bias: Tensor, carry: Carry, dilation: int = 1, join: int = 1, cut: int = 1
    ) -> None:
        """`weight`: [cut·out, join·in, width], for rows that are joined before and cut apart after; `bias`: [cut·out].

        Raises ValueError where the rows of a frame cannot be joined.
        """
        if carry.rate % join:
            raise ValueError(f"{carry.rate} rows per frame cannot be joined by {join}")
        channels, width = weight.shape[1:]
        reach = (width - 1) * dilation
        self.dilation, self.join, self.cut = dilation, join, cut
        self.bias = bias
        self.kernel = weight[:, :, None].contiguous(memory_format=torch.channels_last)
        self.packed = weight.device.type == "cpu" and weight.dtype == torch.float32 and _can_pack()
        if self.packed:
            typical = [1, channels, 1, _TYPICAL_ROWS + reach]
            self.kernel = torch.ops.mkldnn._reorder_convolution_weight(self.kernel, *self._geometry, typical)
        carry.rate //= join
        self.part = carry.reserve(reach, channels) if reach else None
        carry.rate *= cut

    @classmethod
    def strided(cls, weight: Tensor, bias: Tensor, carry: Carry, stride: int) -> "CausalConvolution":
        """`weight`: [out, in, k]. Answers one row for `stride` rows; sees k - stride rows before them."""
        out, channels, width = weight.shape
        # taps in front that are zero make the width a multiple of the stride
        taps = fn.pad(weight, (-width % stride, 0)).view(out, channels, -1, stride)
        return cls(taps.permute(0, 3, 1, 2).reshape(out, stride * channels, -1), bias, carry, join=stride)

    @classmethod
    def transposed(cls, weight: Tensor, bias: Tensor, carry: Carry, stride: int) -> "CausalConvolution":
        """`weight`: [in, out, k]. Answers `stride` rows for each row: the full result but its last k - stride rows."""
        channels, out, width = weight.shape
        taps = fn.pad(weight, (0, -width % stride)).view(channels, out, -1, stride).flip(2)
        weight = taps.permute(3, 1, 0, 2).reshape(stride * out, channels, -1)
        return cls(weight, bias.repeat(stride), carry, cut=stride)

    def __call__(self, rows: Tensor, batch: Batch) -> Tensor:
        """[streams, n, in] → [streams, n / join · cut, out]."""
        image = self._image(rows, batch)
        if self.packed:
            pointwise = torch.ops.mkldnn._convolution_pointwise
            answer = pointwise(image, self.kernel, self.bias, *self._geometry, "none", [], "")
        else:
            answer = fn.conv2d(image, self.kernel, self.bias, dilation=(1, self.dilation))
        rows = answer.permute(0, 2, 3, 1)
        return rows.reshape(len(rows), rows.shape[2] * self.cut, -1)

    def add_to(self, total: Tensor, rows: Tensor, batch: Batch) -> Tensor:
        """Adds the layer's answer for `rows` to `total`, in place. For layers that do not cut their rows."""
        if not self.packed:
            return total.add_(self(rows, batch))
        image, onto = self._image(rows, batch), _as_image(total)
        pointwise = torch.ops.mkldnn._convolution_pointwise_.binary
        pointwise(onto, image, self.kernel, self.bias, *self._geometry, "add", 1.0, None, [], None)
        return total

    @property
    def _geometry(self) -> tuple[list[int], list[int], list[int], int]:
        """Padding, stride, dilation and groups."""
        return [0, 0], [1, 1], [1, self.dilation], 1

    def _image(self, rows: Tensor, batch: Batch) -> Tensor:
        """The rows and those before them that are seen, [streams, in, 1, rows] with the channels last in memory."""
        joined = rows.reshape(len(rows), rows.shape[1] // self.join, -1)
        return _as_image(joined if self.part is None else batch.extend(self.part, joined))


def _as_image(rows: Tensor) -> Tensor:
    return rows[:, None].permute(0, 3, 1, 2)


def _can_pack() -> bool:
    return hasattr(torch.ops.mkldnn, "_convolution_pointwise")


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
            lengths = torch.linalg.vector_norm(vectors.flatten(1), dim=1)
            return weights.take(gain, gains) * vectors / lengths.view(gains)
    return weights.take(f"{name}.weight", shape)
