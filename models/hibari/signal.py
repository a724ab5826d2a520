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
_HALF_WINDOW_HOPS = 2
_VOICED_HZ, _TOP_HZ = 40.0, 11000.0
_LOG_CEILING = 7.0
_DRAWS = 604
"""64-bit draws per frame: one per bin, rounded up to whole Philox counters."""
_DRAWS_PER_COUNTER = 4


@dataclass(frozen=True, slots=True)
class NoiseKey:
    """Which noise: every draw is a function of this, the frame's number in the log and the bin."""

    seed: int
    take: int
    segment: int

    def noise(self, first: int, count: int) -> tuple[Tensor, Tensor]:
        """Complex normal numbers as (magnitudes, angles), [count, bins] each, for frames from `first` on.

        Box-Muller in polar form; real and imaginary part have unit variance.
        """
        key = np.array([self.seed & (2**64 - 1), self.take << 32 | self.segment], np.uint64)
        generator = np.random.Philox(counter=first * _DRAWS // _DRAWS_PER_COUNTER, key=key)
        draws = generator.random_raw(count * _DRAWS).astype("<u8").view("<u4").reshape(count, _DRAWS, 2)[:, :BINS]
        uniform = torch.from_numpy((draws >> 8).astype(np.float32)).add_(0.5).mul_(2.0**-24)  # in (0, 1)
        return uniform[..., 0].log().mul_(-2).sqrt_(), uniform[..., 1] * (2 * math.pi)


class PulseTrain:
    """Band-limited pulses of a whole utterance, made frame by frame on demand."""

    def __init__(self, f0: Tensor) -> None:
        """`f0`: [frames] float32 Hz."""
        self.frames = len(f0)
        self.f0 = fn.pad(f0[None], (1, 1), mode="replicate")[0]
        cycles = self._pitch(0, self.frames).clamp_(min=_VOICED_HZ).sum(1, dtype=torch.float64) / SAMPLE_RATE
        self.cycles = cycles.cumsum(0) - cycles  # [frames] float64: cycles before each frame

    def spectra(self, start: int, end: int) -> Tensor:
        """Centred spectra of frames start to end, [end - start, bins] complex64."""
        before, after = start - _HALF_WINDOW_HOPS, end + _HALF_WINDOW_HOPS - 1
        # Mirroring half a window takes one hop more than that.
        first, last = max(before, 0), min(max(after, _HALF_WINDOW_HOPS + 1), self.frames)
        mirrored = (first - before) * HOP, max(after - last, 0) * HOP
        return stft(self.samples(first, last), WINDOW / HOP, HOP, mirrored)[: end - start]

    def samples(self, start: int, end: int) -> Tensor:
        """All harmonics below 11 kHz with amplitude 1, silence where unvoiced: [(end - start)·HOP]."""
        pitch = self._pitch(start, end)
        voiced = pitch > _VOICED_HZ
        pitch.clamp_(min=_VOICED_HZ)
        cycles = pitch.cumsum(1, dtype=torch.float64).div_(SAMPLE_RATE).add_(self.cycles[start:end, None])
        phase = cycles.frac_().mul_(2 * math.pi).float()
        harmonics = (_TOP_HZ / pitch).floor_()
        divisor = (phase / 2).sin_().mul_(2)
        pulses = ((harmonics + 0.5) * phase).sin_() / divisor - 0.5
        pulses = torch.where(divisor.abs() > 2e-3, pulses, harmonics)  # the limit at the peak
        return (pulses * voiced).view(-1)

    def _pitch(self, start: int, end: int) -> Tensor:
        """f0 between frame centres, linear: [end - start, HOP] float32."""
        before, here, after = (self.f0[start + shift : end + shift, None] for shift in range(3))
        weight = (torch.arange(HOP // 2) + 0.5) / HOP
        return torch.cat([torch.lerp(before, here, weight + 0.5), torch.lerp(here, after, weight)], 1)


def combine(parts: Tensor, pulses: Tensor, noise: tuple[Tensor, Tensor]) -> Tensor:
    """Network rows [frames, 5·bins] (overwritten), pulse spectra and noise → spectra [frames, bins] complex64."""
    magnitudes = parts[:, : 3 * BINS].clamp_(max=_LOG_CEILING).exp_().view(-1, 3, BINS)
    theta, phi = parts[:, 3 * BINS : 4 * BINS].tanh_().mul_(math.pi), parts[:, 4 * BINS :]
    angles = torch.stack([theta, noise[1], phi], 1)
    magnitudes[:, 1].mul_(noise[0])
    real, imaginary = magnitudes * angles.cos(), magnitudes * angles.sin()
    voice = torch.complex(real[:, 0], imaginary[:, 0]) * pulses
    return voice + torch.complex(real[:, 1] + real[:, 2], imaginary[:, 1] + imaginary[:, 2])


def to_s16(samples: Tensor) -> bytes:
    """float32 → s16le: ×32768, half to even, saturating, NaN → 0."""
    scaled = (samples * 32768).round_().nan_to_num_(nan=0.0).clamp_(-32768, 32767)
    return scaled.short().numpy().astype("<i2").tobytes()
