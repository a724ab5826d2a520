"""A recording → one vector: ECAPA-TDNN (Desplanques et al., arXiv:2005.07143) over a mel spectrogram.

Tensors are [channels, frames]. Convolutions keep the number of frames; the signal is mirrored at its ends.
"""

from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as fn

from speechmill.models.common.checkpoint import Reader
from speechmill.models.common.folder import build, find_source
from speechmill.models.common.spectral import hann, mel_bank, stft
from speechmill.models.qwen3_tts.speaker.config import SpeakerConfig, read_config

_WINDOW, _HOP = 1024, 256
_EDGE = (_WINDOW - _HOP) // 2
_LEAST_SQUARE, _LEAST_MEL, _LEAST_VARIANCE = 1e-9, 1e-5, 1e-12


class SpeakerEncoder:
    """Samples at the encoder's rate → how the speaker sounds."""

    def __init__(self, weights: Reader, config: SpeakerConfig) -> None:
        """`weights`: of the whole checkpoint."""
        weights, channels = weights.at("speaker_encoder"), config.channels
        self.enter = _Convolution(
            weights.at("blocks.0"), channels[0], config.bands, config.kernels[0], config.dilations[0]
        )
        self.blocks = [_Block(weights.at(f"blocks.{index}"), config, index) for index in range(1, len(channels) - 1)]
        merged = sum(channels[1:-1])
        self.merge = _Convolution(weights.at("mfa"), channels[-1], merged, config.kernels[-1], config.dilations[-1])
        self.pool = _AttentivePooling(weights.at("asp"), channels[-1], config.attention)
        self.leave = _Convolution(weights, config.width, 2 * channels[-1], name="fc")
        self.device = self.leave.weight.device
        self.bank = mel_bank(config.bands, _WINDOW // 2 + 1, config.sample_rate).to(self.device)
        self.window = hann(_WINDOW).to(self.device)
        self.sample_rate = config.sample_rate
        shapes = zip(config.kernels, config.dilations, strict=True)
        self.shortest = (max((kernel - 1) * dilation // 2 for kernel, dilation in shapes) + 1) * _HOP
        """Samples of the shortest recording that can be mirrored at its ends."""

    @torch.inference_mode()
    def __call__(self, samples: Tensor) -> Tensor:
        """[n] float32, n at least `shortest` → [width] float32, both in the CPU's memory."""
        rows = self.enter(self.mel(samples.to(self.device))).relu()
        found: list[Tensor] = []
        for block in self.blocks:
            rows = block(rows)
            found.append(rows)
        pooled = self.pool(self.merge(torch.cat(found)).relu())
        return self.leave(pooled[:, None])[:, 0].cpu()

    def mel(self, samples: Tensor) -> Tensor:
        """[n] → logarithms of the mel bands' magnitudes, [bands, n // 256]."""
        spectra = torch.view_as_real(stft(samples, self.window, _HOP, (_EDGE, _EDGE)))
        magnitudes = (spectra.square().sum(-1) + _LEAST_SQUARE).sqrt()
        return (self.bank @ magnitudes.T).clamp(min=_LEAST_MEL).log()


def load_speaker(folder: Path, device: torch.device) -> tuple[SpeakerEncoder, int]:
    """Of the checkpoint `folder`, in float32, and the bytes that its weights take. Raises CannotLoad in one line."""
    config = read_config(folder)

    def make(weights: Reader, device: torch.device) -> SpeakerEncoder:
        return SpeakerEncoder(weights, config)

    return build(make, find_source(folder), lambda key: key, device, torch.float32)


class _Convolution:
    def __init__(
        self, weights: Reader, outputs: int, inputs: int, kernel: int = 1, dilation: int = 1, name: str = "conv"
    ) -> None:
        self.weight = weights.take(f"{name}.weight", (outputs, inputs, kernel))
        self.bias = weights.take(f"{name}.bias", (outputs,))
        self.dilation, self.edge = dilation, (kernel - 1) * dilation // 2

    def __call__(self, rows: Tensor) -> Tensor:
        if self.edge:
            rows = fn.pad(rows[None], (self.edge, self.edge), mode="reflect")[0]
        return fn.conv1d(rows[None], self.weight, self.bias, dilation=self.dilation)[0]


class _Block:
    """x + gate · merge(parts(narrow(x))): Res2Net (arXiv:1904.01169) with squeeze and excitation (arXiv:1709.01507)."""

    def __init__(self, weights: Reader, config: SpeakerConfig, index: int) -> None:
        inputs, channels = config.channels[index - 1 : index + 1]
        part, kernel, dilation = channels // config.scale, config.kernels[index], config.dilations[index]
        parts, excitation = weights.at("res2net_block.blocks"), weights.at("se_block")
        self.scale = config.scale
        self.first = _Convolution(weights.at("tdnn1"), channels, inputs)
        self.parts = [
            _Convolution(parts.at(str(number)), part, part, kernel, dilation) for number in range(config.scale - 1)
        ]
        self.second = _Convolution(weights.at("tdnn2"), channels, channels)
        self.squeeze = _Convolution(excitation, config.squeezed, channels, name="conv1")
        self.excite = _Convolution(excitation, channels, config.squeezed, name="conv2")

    def __call__(self, rows: Tensor) -> Tensor:
        mixed = self.second(self._mix(self.first(rows).relu())).relu()
        gate = self.excite(self.squeeze(mixed.mean(1, keepdim=True)).relu()).sigmoid()
        return rows + mixed * gate

    def _mix(self, rows: Tensor) -> Tensor:
        """The first part of the channels stays as it is, each of the others hears the one before."""
        made, *rest = rows.chunk(self.scale)
        found = [made]
        for number, (convolution, part) in enumerate(zip(self.parts, rest, strict=True)):
            made = convolution(part + made if number else part).relu()
            found.append(made)
        return torch.cat(found)


class _AttentivePooling:
    """Means and deviations over time, weighted for each channel by what the whole recording sounds like."""

    def __init__(self, weights: Reader, channels: int, attention: int) -> None:
        self.narrow = _Convolution(weights.at("tdnn"), attention, 3 * channels)
        self.widen = _Convolution(weights, channels, attention)

    def __call__(self, rows: Tensor) -> Tensor:
        """[channels, frames] → [2 · channels]."""
        even = rows.new_full((1, rows.shape[1]), 1 / rows.shape[1])
        whole = [part[:, None].expand_as(rows) for part in _moments(rows, even)]
        scores = self.widen(self.narrow(torch.cat([rows, *whole])).relu().tanh())
        return torch.cat(_moments(rows, scores.softmax(1)))


def _moments(rows: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Weighted mean and deviation of each channel."""
    mean = (rows * weights).sum(1)
    variance = ((rows - mean[:, None]).square() * weights).sum(1)
    return mean, variance.clamp(min=_LEAST_VARIANCE).sqrt()
