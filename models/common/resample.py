"""Sample-rate conversion by a windowed sinc: Hann window of six zero crossings a side, cut-off at 0.99 of Nyquist."""

import math

import torch
from torch import Tensor
from torch.nn import functional as fn

_CROSSINGS = 6
_ROLLOFF = 0.99
_BLOCK = 1 << 16
"""Samples made at once."""


def resample(samples: Tensor, source_hz: int, target_hz: int) -> Tensor:
    """[n] float32 → [ceil(n · target / source)] float32. There is silence before and after the signal."""
    if source_hz == target_hz or not len(samples):
        return samples
    common = math.gcd(source_hz, target_hz)
    source, target = source_hz // common, target_hz // common
    kernel = _kernel(source, target)  # [target, taps]
    reach = kernel.shape[1] // 2
    count = -(-len(samples) * target // source)
    near = fn.pad(samples, (reach, reach)).unfold(0, kernel.shape[1], 1)  # [n, taps]: the samples around each sample
    pieces: list[Tensor] = []
    for start in range(0, count, _BLOCK):
        made = torch.arange(start, min(start + _BLOCK, count))
        pieces.append((near[made * source // target] * kernel[made % target]).sum(1))
    return torch.cat(pieces)


def _kernel(source: int, target: int) -> Tensor:
    """For each phase of the output what the samples around it weigh, [target, 2·reach + 1] float32.

    Phase k stands k·source/target samples into the input; the middle tap is the last sample not after it.
    """
    cutoff = min(source, target) * _ROLLOFF / source  # zero crossings per input sample
    reach = math.ceil(_CROSSINGS / cutoff) + 1
    past = (torch.arange(target) * source % target).double() / target
    distance = torch.arange(-reach, reach + 1, dtype=torch.float64) - past[:, None]
    crossings = (distance * cutoff).clamp(-_CROSSINGS, _CROSSINGS)
    window = torch.cos(crossings * math.pi / _CROSSINGS / 2).square()
    return (torch.sinc(crossings) * window * cutoff).float()
