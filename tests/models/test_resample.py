"""Resampling is the sum over a window that its definition says, and what it lets through is what was asked for."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from speechmill.models.common.resample import HANN, KAISER, Sinc, resample


def defined(samples: Tensor, source_hz: int, target_hz: int, sinc: Sinc) -> Tensor:
    """Every output is a sum over all of the input."""
    count = -(-len(samples) * target_hz // source_hz)
    place = torch.arange(count, dtype=torch.float64)[:, None] * source_hz / target_hz
    cutoff = min(source_hz, target_hz) * sinc.cutoff / source_hz
    crossings = (torch.arange(len(samples)) - place) * cutoff
    near = crossings.abs() < sinc.crossings
    weights = torch.sinc(crossings) * sinc.window((crossings / sinc.crossings).clamp(-1, 1)) * cutoff
    return (torch.where(near, weights, 0.0) @ samples.double()).float()


rates = st.integers(1, 150)


@settings(max_examples=30)
@given(st.integers(1, 100), rates, rates, st.sampled_from([HANN, KAISER]))
def test_every_rate_becomes_every_other_by_the_same_sum(count: int, source: int, target: int, sinc: Sinc) -> None:
    samples = torch.randn(count, generator=torch.Generator().manual_seed(count))
    found = resample(samples, source, target, sinc)
    wanted = samples if source == target else defined(samples, source, target, sinc)
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=0)


@pytest.mark.parametrize("source", [8000, 16000, 22050, 44100, 48000, 96000])
def test_tones_below_the_edge_stay_and_those_above_are_gone(source: int) -> None:
    lower = min(source, 24_000) / 2

    def heard(hz: float, rate: int) -> Tensor:
        return torch.sin(2 * math.pi * hz / rate * torch.arange(rate // 4, dtype=torch.float64)).float()

    inner = slice(400, -400)
    kept = resample(heard(0.9 * lower, source), source, 24_000, KAISER)
    torch.testing.assert_close(kept[inner], heard(0.9 * lower, 24_000)[: len(kept)][inner], atol=1e-4, rtol=0)
    if source > 24_000:
        assert resample(heard(1.01 * lower, source), source, 24_000, KAISER)[inner].abs().max() < 1e-4


def test_nothing_stays_nothing() -> None:
    assert resample(torch.empty(0), 16_000, 24_000).shape == (0,)
