"""The voice's source-filter part: spectral parts and pitch of consecutive frames → their spectra.

S = e^lh · e^{iπ·tanh(theta)} · E + e^ln · Z + e^lr · e^{i·phi}, with E the spectrum of a pulse train and Z noise.
Everything here depends on a frame's number and not on which frames are made together.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as fn

from speechmill.models.common.spectral import hann, stft
from speechmill.models.hibari.decoder import BINS

SAMPLE_RATE = 24000
HOP = 300
WINDOW = hann(4 * HOP)
_PULSE_WINDOW = WINDOW / HOP
_HALF_WINDOW_HOPS = 2
_VOICED_HZ, _TOP_HZ = 40.0, 11000.0
_LOG_CEILING = 7.0
_DRAWS = 2 * BINS
_COUNTERS = math.ceil(_DRAWS * 16 / 256)
"""Philox counters per frame; each gives 256 bits, a draw takes 16."""
_QUANTILES = torch.special.ndtri((torch.arange(2**16, dtype=torch.float64) + 0.5) / 2**16).float()
"""The normal distribution in steps of equal probability: a draw is one look-up."""


@dataclass(frozen=True, slots=True)
class NoiseKey:
    """Which noise: every draw is a function of this, the frame's number in the log and the bin."""

    seed: int
    take: int
    segment: int

    def noise(self, first: int, count: int) -> Tensor:
        """Standard normal numbers for frames from `first` on: [count, 2, bins], real and imaginary parts."""
        key = np.array([self.seed & (2**64 - 1), self.take << 32 | self.segment], np.uint64)
        raw = np.random.Philox(counter=first * _COUNTERS, key=key).random_raw(count * _COUNTERS * 4)
        draws = raw.astype("<u8", copy=False).view("<u2").reshape(count, -1)[:, :_DRAWS].astype(np.int32)
        noise: Tensor = _QUANTILES.index_select(0, torch.from_numpy(draws).view(-1))
        return noise.view(count, 2, BINS)


class PulseTrain:
    """Band-limited pulses of a whole utterance, made frame by frame on demand."""

    def __init__(self, f0: Tensor) -> None:
        """`f0`: [frames] float32 Hz."""
        self.pitch = _between_frames(f0)  # [frames, HOP]
        cycles = self.pitch.clamp(min=_VOICED_HZ).sum(1, dtype=torch.float64) / SAMPLE_RATE
        self.cycles = cycles.cumsum(0) - cycles  # [frames] float64: cycles before each frame

    def spectra(self, start: int, end: int) -> Tensor:
        """Centred spectra of frames start to end, [end - start, bins] complex64."""
        before, after = start - _HALF_WINDOW_HOPS, end + _HALF_WINDOW_HOPS - 1
        # Mirroring half a window takes one hop more than that.
        first, last = max(before, 0), min(max(after, _HALF_WINDOW_HOPS + 1), len(self.pitch))
        mirrored = (first - before) * HOP, max(after - last, 0) * HOP
        return stft(self.samples(first, last), _PULSE_WINDOW, HOP, mirrored)[: end - start]

    def samples(self, start: int, end: int) -> Tensor:
        """All harmonics below 11 kHz with amplitude 1, silence where unvoiced: [(end - start)·HOP]."""
        pitch = self.pitch[start:end].clamp(min=_VOICED_HZ)
        cycles = pitch.cumsum(1, dtype=torch.float64).div_(SAMPLE_RATE).add_(self.cycles[start:end, None])
        half_phase = cycles.frac_().mul_(math.pi).float()
        harmonics = (_TOP_HZ / pitch).floor_()
        divisor = half_phase.sin().mul_(2)
        pulses = (2 * harmonics + 1).mul_(half_phase).sin_().div_(divisor).sub_(0.5)
        pulses = torch.where(divisor.abs_() > 2e-3, pulses, harmonics)  # the limit at the peak
        return pulses.mul_(self.pitch[start:end] > _VOICED_HZ).view(-1)


def _between_frames(f0: Tensor) -> Tensor:
    """f0 at every sample, linear between the frames' centres, held at the ends: [frames] → [frames, HOP]."""
    padded = fn.pad(f0[None], (1, 1), mode="replicate")[0, :, None]
    weight = (torch.arange(HOP // 2) + 0.5) / HOP
    first_half = torch.lerp(padded[:-2], padded[1:-1], weight + 0.5)
    return torch.cat([first_half, torch.lerp(padded[1:-1], padded[2:], weight)], 1)


def combine(parts: Tensor, pulses: Tensor, noise: Tensor) -> Tensor:
    """Network rows [frames, 5·bins], pulse spectra [frames, bins] and noise → spectra [frames, bins] complex64.

    All three are overwritten. Real and imaginary parts stay apart until the end: interleaved arithmetic is slower.
    """
    lh, ln, lr = parts[:, : 3 * BINS].clamp_(max=_LOG_CEILING).exp_().view(-1, 3, BINS).unbind(1)
    angles = parts[:, 3 * BINS :]
    angles[:, :BINS].tanh_().mul_(math.pi)
    cos, sin = (part.view(-1, 2, BINS) for part in (angles.cos(), angles.sin()))
    voice = torch.complex(lh * cos[:, 0], lh * sin[:, 0]).mul_(pulses)
    noise.mul_(ln[:, None])
    real, imaginary = noise[:, 0].addcmul_(lr, cos[:, 1]), noise[:, 1].addcmul_(lr, sin[:, 1])
    return voice.add_(torch.complex(real, imaginary))
