"""Sample-rate conversion by a windowed sinc. Codes depend on the filter, so each model has the one it was made with."""

import math
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional as fn

_TILE = 64
"""Neighbouring outputs that are made by one product."""
_STEPS = 8192
"""Of the filter's table, for each zero crossing: a line between two is as good as float32."""


@dataclass(frozen=True, slots=True)
class Sinc:
    """A low-pass filter."""

    crossings: float
    """Half of its length, in zero crossings."""
    cutoff: float
    """Where it has half of its gain, as a part of the lower of the two Nyquist frequencies."""
    beta: float | None
    """Of a Kaiser window; None for a Hann window."""

    def window(self, place: Tensor) -> Tensor:
        """At places from -1 to 1."""
        if self.beta is None:
            return torch.cos(place * math.pi / 2).square()
        edge = torch.i0(torch.tensor(self.beta, dtype=place.dtype))
        return torch.i0(self.beta * (1 - place.square()).clamp(min=0).sqrt()) / edge


HANN = Sinc(crossings=6, cutoff=0.99, beta=None)
"""torchaudio's."""
KAISER = Sinc(crossings=93.274, cutoff=0.956873, beta=13.2037)
"""Flat below 0.914 of the Nyquist frequency and silent from there on: the filter of soxr's `HQ`, which is librosa's."""


def resample(samples: Tensor, source_hz: int, target_hz: int, sinc: Sinc = HANN) -> Tensor:
    """[n] float32 → [ceil(n · target / source)] float32. There is silence before and after the signal."""
    if source_hz == target_hz or not len(samples):
        return samples
    common = math.gcd(source_hz, target_hz)
    repeats = -(-_TILE * common // target_hz)  # of the shortest period, so that a product has enough columns
    source, target = source_hz // common * repeats, target_hz // common * repeats
    cutoff = min(source, target) * sinc.cutoff / source  # zero crossings per input sample
    reach = math.ceil(sinc.crossings / cutoff) + 1
    count = -(-len(samples) * target // source)
    periods = -(-count // target)
    padded = fn.pad(samples, (reach, periods * source - len(samples) + reach))
    made = samples.new_empty(periods, target)
    for first in range(0, target, _TILE):
        phases = torch.arange(first, min(first + _TILE, target)) * source
        starts = phases // target  # the last samples that are not after the outputs
        weights = _weights(sinc, cutoff, reach, (phases % target).double() / target)
        around = _spread(weights, starts - starts[0])
        near = padded.as_strided((periods, around.shape[1]), (source, 1), int(starts[0]))
        made[:, first : first + _TILE] = near @ around.T
    return made.flatten()[:count]


def _weights(sinc: Sinc, cutoff: float, reach: int, past: Tensor) -> Tensor:
    """What the samples around each output weigh, [outputs, 2·reach + 1] float32.

    An output stands `past` samples, [outputs] float64 from 0 to 1, behind the middle one.
    """
    distance = torch.arange(-reach, reach + 1, dtype=torch.float64) - past[:, None]
    place = (distance * cutoff).abs().clamp(max=sinc.crossings) * _STEPS
    below, table = place.long(), _table(sinc)
    return (table[below].lerp(table[below + 1], place - below) * cutoff).float()


@cache
def _table(sinc: Sinc) -> Tensor:
    """The filter from its middle on. Rates without a common divisor want it in more places than can be computed."""
    crossings = torch.arange(math.ceil(sinc.crossings * _STEPS) + 2, dtype=torch.float64) / _STEPS
    crossings = crossings.clamp(max=sinc.crossings)
    return torch.sinc(crossings) * sinc.window(crossings / sinc.crossings)


def _spread(weights: Tensor, starts: Tensor) -> Tensor:
    """[outputs, taps] → the same over all samples that the outputs see together, [outputs, taps + last start]."""
    wide = weights.new_zeros(len(weights), weights.shape[1] + int(starts[-1]))
    return wide.scatter_(1, starts[:, None] + torch.arange(weights.shape[1]), weights)
