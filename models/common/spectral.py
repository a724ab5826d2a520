"""Short-time Fourier transforms over signals that arrive in whole hops. Signals are float32, hops divide windows."""

import math

import torch
from torch import Tensor
from torch.nn import functional as fn


def hann(size: int) -> Tensor:
    """Periodic Hann window, [size] float32."""
    return torch.hann_window(size, periodic=True, dtype=torch.float64).float()


def stft(signal: Tensor, window: Tensor, hop: int, reflect: tuple[int, int] = (0, 0)) -> Tensor:
    """Spectra [frames, window // 2 + 1] complex64 of every full window in `signal` [samples].

    `reflect` mirrors that many samples at the two ends first, as a centred transform does at a signal's ends.
    """
    if any(reflect):
        signal = fn.pad(signal[None], reflect, mode="reflect")[0]
    spectra: Tensor = torch.fft.rfft(signal.unfold(0, len(window), hop) * window)
    return spectra


def mel_bank(bands: int, bins: int, rate_hz: int) -> Tensor:
    """Triangles that gather the bins of a spectrum up to rate_hz / 2 into mel bands, [bands, bins] float32.

    On Slaney's scale, linear up to 1 kHz and logarithmic above, each of area 1 (librosa's defaults).
    """
    top = _mel(rate_hz / 2)
    edges = torch.tensor([_hz(top * band / (bands + 1)) for band in range(bands + 2)], dtype=torch.float64)
    distance = edges[:, None] - torch.linspace(0, rate_hz / 2, bins, dtype=torch.float64)
    widths = edges.diff()[:, None]
    rising, falling = -distance[:-2] / widths[:-1], distance[2:] / widths[1:]
    areas = 2 / (edges[2:] - edges[:-2])
    return (rising.minimum(falling).clamp(min=0) * areas[:, None]).float()


_MELS_PER_HZ = 3 / 200
_BREAK_HZ = 1000.0
_LOG_STEP = math.log(6.4) / 27


def _mel(hz: float) -> float:
    return hz * _MELS_PER_HZ if hz < _BREAK_HZ else _BREAK_HZ * _MELS_PER_HZ + math.log(hz / _BREAK_HZ) / _LOG_STEP


def _hz(mel: float) -> float:
    linear = mel / _MELS_PER_HZ
    return linear if linear < _BREAK_HZ else _BREAK_HZ * math.exp((mel - _BREAK_HZ * _MELS_PER_HZ) * _LOG_STEP)


class OverlapAdd:
    """Inverse of a centred `stft` whose spectra come in chunks. Keeps the hops that later windows still add to."""

    def __init__(self, window: Tensor, hop: int, first: int = 0) -> None:
        """`first`: number of the first frame that will be added; what earlier frames overlap is not made."""
        self.window = window
        self.power = (window * window).view(-1, hop)  # [windows over a hop, hop]
        self.frame = first
        self.skip = len(self.power) // 2 if first == 0 else len(self.power) - 1
        self.tail = torch.zeros(len(self.power) - 1, hop)

    def add(self, spectra: Tensor, last: bool) -> Tensor:
        """[frames, bins] → the samples that are now complete; with `last`, all up to one hop per frame."""
        overlap, hop = self.power.shape
        pieces = torch.fft.irfft(spectra, len(self.window)).mul_(self.window).view(-1, overlap, hop)
        count = len(pieces)
        total = torch.cat([self.tail, pieces.new_zeros(count, hop)])
        for index in range(overlap):
            total[index : index + count] += pieces[:, index]
        self.tail = total[count:].clone()
        done = count + overlap // 2 if last else count
        power = self._power(done, self.frame + count if last else math.inf)
        out = total[self.skip : done].div_(power[self.skip :])
        self.frame += count
        self.skip = max(0, self.skip - count)
        return out.reshape(-1)

    def _power(self, hops: int, frames: float) -> Tensor:
        """Summed squared windows over the next `hops` hops, of a signal of that many frames: [hops, hop]."""
        hop_number = torch.arange(self.frame, self.frame + hops)[:, None]
        frame_number = hop_number - torch.arange(len(self.power))
        return ((frame_number >= 0) & (frame_number < frames)).float() @ self.power
