"""Shared layers: chunked equals whole, and the whole equals torch's own."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as fn

from speechmill.models.common.spectral import OverlapAdd, hann, stft
from speechmill.models.common.streaming import Lanes, Stream, depthwise, pad_rows, unfold_rows

cuts = st.lists(st.integers(7, 40), min_size=1, max_size=5)


def noise(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


@given(st.integers(1, 30), st.sampled_from([1, 2, 4]))
def test_depthwise_is_torch_s_grouped_convolution(count: int, dilation: int) -> None:
    rows, taps, bias = noise(count, 6), noise(7, 6), noise(6)
    wanted = fn.conv1d(rows.T, taps.T[:, None], bias, padding=3 * dilation, dilation=dilation, groups=6).T
    torch.testing.assert_close(depthwise(pad_rows(rows, 3 * dilation), taps, bias, dilation), wanted)


def test_unfolded_rows_make_a_dense_convolution_one_product() -> None:
    rows, weight = noise(11, 4), noise(5, 4, 3)
    wanted = fn.conv1d(rows.T, weight, padding=1).T
    torch.testing.assert_close(unfold_rows(pad_rows(rows, 1), 3) @ weight.transpose(1, 2).flatten(1).T, wanted)


@given(cuts, cuts)
def test_streams_in_chunks_and_beside_each_other_equal_one_call(first: list[int], second: list[int]) -> None:
    taps, bias, layers = noise(7, 3), noise(3), 2
    rows = [noise(sum(sizes), 3) for sizes in (first, second)]
    streams = [Stream.start([3] * layers, 3) for _ in rows]
    chunks = [list(part.split(sizes)) for part, sizes in zip(rows, (first, second), strict=True)]
    heard: list[list[torch.Tensor]] = [[], []]
    while live := [index for index in range(2) if chunks[index]]:
        fresh = [chunks[index].pop(0) for index in live]
        for index in live:
            streams[index].ended = not chunks[index]
        lanes = Lanes([streams[index] for index in live], fresh, 3)
        for layer in range(layers):
            lanes.rows = lanes.valid(depthwise(lanes.widen(layer), taps, bias))
        for index, part in zip(live, lanes.rows.split(lanes.lengths), strict=True):
            heard[index].append(part)
    for part, found in zip(rows, heard, strict=True):
        wanted = part
        for _ in range(layers):
            wanted = depthwise(pad_rows(wanted, 3), taps, bias)
        torch.testing.assert_close(torch.cat(found), wanted)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_overlap_add_in_chunks_inverts_a_centred_transform(sizes: list[int]) -> None:
    window, hop, frames = hann(64), 16, sum(sizes)
    spectra = torch.fft.rfft(noise(frames, 64))
    wanted = torch.istft(spectra.T, 64, hop, window=window, length=frames * hop)
    overlap, chunks = OverlapAdd(window, hop), list(spectra.split(sizes))
    heard = [overlap.add(chunk, last=index == len(chunks) - 1) for index, chunk in enumerate(chunks)]
    torch.testing.assert_close(torch.cat(heard), wanted, atol=1e-5, rtol=1e-4)


def test_reflected_windows_are_torch_s_centred_transform() -> None:
    signal, window = noise(160), hann(64)
    wanted = torch.stft(signal, 64, 16, window=window, return_complex=True).T
    torch.testing.assert_close(stft(signal, window, 16, (32, 32)), wanted)
