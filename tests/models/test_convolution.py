"""Convolutions over chunks of a stream are PyTorch's over all of it."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as fn

from speechmill.models.common.carry import Carry, Streams
from speechmill.models.common.convolution import CausalConvolution


@given(st.integers(1, 3), st.integers(1, 6), st.integers(1, 3), st.lists(st.integers(1, 4), min_size=1, max_size=5))
def test_a_convolution_in_chunks_is_torch_s_padded_one(
    stride: int, width: int, channels: int, chunks: list[int]
) -> None:
    width = max(width, stride)
    random = torch.Generator().manual_seed(width)
    rows = torch.randn(1, stride * sum(chunks), channels, generator=random)
    weight, bias = torch.randn(2, channels, width, generator=random), torch.randn(2, generator=random)
    carry = Carry(stride)
    layer = CausalConvolution.strided(weight, bias, carry, stride)
    wanted = fn.conv1d(fn.pad(rows.mT, (width - stride, 0)), weight, bias, stride)
    torch.testing.assert_close(_streamed(layer, carry, rows, [stride * size for size in chunks], chunks), wanted.mT)


@given(st.integers(1, 3), st.integers(1, 6), st.lists(st.integers(1, 4), min_size=1, max_size=5))
def test_a_transposed_convolution_in_chunks_is_torch_s_without_its_tail(
    stride: int, width: int, chunks: list[int]
) -> None:
    width = max(width, stride)
    random = torch.Generator().manual_seed(width)
    rows = torch.randn(1, sum(chunks), 3, generator=random)
    weight, bias = torch.randn(3, 2, width, generator=random), torch.randn(2, generator=random)
    carry = Carry()
    layer = CausalConvolution.transposed(weight, bias, carry, stride)
    wanted = fn.conv_transpose1d(rows.mT, weight, bias, stride).mT[:, : stride * sum(chunks)]
    torch.testing.assert_close(_streamed(layer, carry, rows, chunks, chunks), wanted)


@given(st.integers(1, 3), st.integers(0, 4), st.lists(st.integers(1, 4), min_size=1, max_size=5))
def test_a_convolution_may_begin_with_its_first_row_again_and_again(stride: int, more: int, chunks: list[int]) -> None:
    random = torch.Generator().manual_seed(more)
    width = stride + more
    rows = torch.randn(1, stride * sum(chunks), 2, generator=random)
    weight, bias = torch.randn(3, 2, width, generator=random), None
    carry = Carry(stride)
    layer = CausalConvolution.strided(weight, bias, carry, stride, repeats=True)
    wanted = fn.conv1d(fn.pad(rows.mT, (width - stride, 0), mode="replicate"), weight, bias, stride)
    torch.testing.assert_close(_streamed(layer, carry, rows, [stride * size for size in chunks], chunks), wanted.mT)


def _streamed(layer: CausalConvolution, carry: Carry, rows: Tensor, cuts: list[int], frames: list[int]) -> Tensor:
    streams = Streams(carry, torch.device("cpu"))
    stream = streams.open()
    answers = [
        layer(part, streams.advance([stream], [count])) for part, count in zip(rows.split(cuts, 1), frames, strict=True)
    ]
    return torch.cat(answers, 1)
