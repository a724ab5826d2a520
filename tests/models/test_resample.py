"""Resampling is the sum over a window that its definition says, and what it lets through is what was asked for."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from speechmill.models.common.resample import resample, resample_by_soxr

CUTOFF, CROSSINGS = 0.99, 6
Resample = Callable[[Tensor, int, int], Tensor]


def defined(samples: Tensor, source_hz: int, target_hz: int) -> Tensor:
    """Every output is a sum over all of the input."""
    count = -(-len(samples) * target_hz // source_hz)
    place = torch.arange(count, dtype=torch.float64)[:, None] * source_hz / target_hz
    cutoff = min(source_hz, target_hz) * CUTOFF / source_hz
    crossings = (torch.arange(len(samples)) - place) * cutoff
    near = crossings.abs() < CROSSINGS
    weights = torch.sinc(crossings) * torch.cos(crossings / CROSSINGS * math.pi / 2).square() * cutoff
    return (torch.where(near, weights, 0.0) @ samples.double()).float()


rates = st.integers(1, 150)


def noise(count: int) -> Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(count))


@settings(max_examples=30)
@given(st.integers(1, 100), rates, rates)
def test_every_rate_becomes_every_other_by_the_same_sum(count: int, source: int, target: int) -> None:
    samples = noise(count)
    wanted = samples if source == target else defined(samples, source, target)
    torch.testing.assert_close(resample(samples, source, target), wanted, atol=1e-5, rtol=0)


@settings(max_examples=30)
@given(st.integers(1, 5000), st.sampled_from([8000, 11_025, 16_000, 22_050, 44_100, 48_000, 96_000]))
def test_soxr_s_output_is_as_long_as_librosa_makes_it(count: int, source: int) -> None:
    assert len(resample_by_soxr(noise(count), source, 24_000)) == math.ceil(count * 24_000 / source)


@pytest.mark.parametrize("resample", [resample, resample_by_soxr])
def test_nothing_stays_nothing(resample: Resample) -> None:
    assert resample(torch.empty(0), 16_000, 24_000).shape == (0,)
