"""Sample-rate conversion. Codes depend on the filter, so each model has the one that it was made with."""

import math

import soxr
import torch
from torch import Tensor
from torch.nn import functional as fn

_TILE = 64
"""Neighbouring outputs that are made by one product."""
_CROSSINGS = 6
"""Half of the filter's length, in zero crossings."""
_CUTOFF = 0.99
"""Where it has half of its gain, as a part of the lower of the two Nyquist frequencies."""


def resample(samples: Tensor, source_hz: int, target_hz: int) -> Tensor:
    """[n] float32 → [ceil(n · target / source)] float32, by torchaudio's filter: a sinc under a Hann window.

    There is silence before and after the signal.
    """
    if source_hz == target_hz or not len(samples):
        return samples
    common = math.gcd(source_hz, target_hz)
    repeats = -(-_TILE * common // target_hz)  # of the shortest period, so that a product has enough columns
    source, target = source_hz // common * repeats, target_hz // common * repeats
    cutoff = min(source, target) * _CUTOFF / source  # zero crossings per input sample
    reach = math.ceil(_CROSSINGS / cutoff) + 1
    count = -(-len(samples) * target // source)
    periods = -(-count // target)
    padded = fn.pad(samples, (reach, periods * source - len(samples) + reach))
    made = samples.new_empty(periods, target)
    for first in range(0, target, _TILE):
        phases = torch.arange(first, min(first + _TILE, target)) * source
        starts = phases // target  # the last samples that are not after the outputs
        weights = _weights(cutoff, reach, (phases % target).double() / target)
        around = _spread(weights, starts - starts[0])
        near = padded.as_strided((periods, around.shape[1]), (source, 1), int(starts[0]))
        made[:, first : first + _TILE] = near @ around.T
    return made.flatten()[:count]


def resample_by_soxr(samples: Tensor, source_hz: int, target_hz: int) -> Tensor:
    """The same by soxr's `HQ`, as librosa does it: flat below 0.91 of the lower Nyquist frequency, silent above it."""
    if source_hz == target_hz or not len(samples):
        return samples
    made = torch.from_numpy(soxr.resample(samples.numpy(), source_hz, target_hz, "HQ"))
    count = -(-len(samples) * target_hz // source_hz)
    return fn.pad(made, (0, count - len(made)))  # a negative number cuts


def _weights(cutoff: float, reach: int, past: Tensor) -> Tensor:
    """What the samples around each output weigh, [outputs, 2·reach + 1] float32.

    An output stands `past` samples, [outputs] float64 from 0 to 1, behind the middle one.
    """
    distance = torch.arange(-reach, reach + 1, dtype=torch.float64) - past[:, None]
    crossings = (distance * cutoff).clamp(-_CROSSINGS, _CROSSINGS)
    return (torch.sinc(crossings) * torch.cos(crossings / _CROSSINGS * math.pi / 2).square() * cutoff).float()


def _spread(weights: Tensor, starts: Tensor) -> Tensor:
    """[outputs, taps] → the same over all samples that the outputs see together, [outputs, taps + last start]."""
    wide = weights.new_zeros(len(weights), weights.shape[1] + int(starts[-1]))
    return wide.scatter_(1, starts[:, None] + torch.arange(weights.shape[1]), weights)
