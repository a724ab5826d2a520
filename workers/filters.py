"""What happens to a segment's PCM between the model and the `out` log: tempo, then sample rate.

Both carry their state over chunk borders and do not depend on where the borders lie.
"""

from typing import cast

import av
import numpy as np
from numpy.typing import NDArray

from speechmill.models.common.stretch import Stretch

Samples = NDArray[np.int16]


class Resampler:
    """Band-limited sample-rate conversion of interleaved s16, by FFmpeg's swresample."""

    def __init__(self, source_hz: int, target_hz: int, channels: int) -> None:
        layout = "mono" if channels == 1 else f"{channels}c"
        self._source_hz, self._layout, self._channels = source_hz, layout, channels
        self._swr = av.AudioResampler(format="s16", layout=layout, rate=target_hz)
        self._scale = target_hz / source_hz
        self._taken = 0
        self._given = 0

    def feed(self, samples: Samples) -> Samples:
        """Interleaved samples in, the converted samples that are certain by now out."""
        if not samples.size:
            return samples
        frame = av.AudioFrame.from_ndarray(samples.reshape(1, -1), format="s16", layout=self._layout)
        frame.sample_rate = self._source_hz
        self._taken += samples.size // self._channels
        return self._collect(frame)

    def finish(self) -> Samples:
        """The tail: afterwards exactly round(frames · target / source) frames have come out."""
        tail = self._collect(None) if self._taken else np.zeros(0, np.int16)
        missing = round(self._taken * self._scale) - self._given
        if missing < 0:
            return tail[: missing * self._channels]
        return np.concatenate([tail, np.zeros(missing * self._channels, np.int16)])

    def _collect(self, frame: av.AudioFrame | None) -> Samples:
        parts = [cast(Samples, made.to_ndarray().reshape(-1)) for made in self._swr.resample(frame)]
        out: Samples = np.concatenate(parts) if parts else np.zeros(0, np.int16)
        self._given += out.size // self._channels
        return out


class Filters:
    """One segment's way from the model's PCM to `out`. s16le bytes in and out, interleaved."""

    def __init__(self, native_hz: int, out_hz: int, channels: int, stretch: float) -> None:
        self.scale = out_hz / native_hz / stretch
        """Frames of `out` per frame of the model."""
        self._stretch = Stretch(stretch, native_hz, channels) if stretch != 1.0 else None
        self._resampler = Resampler(native_hz, out_hz, channels) if out_hz != native_hz else None

    def feed(self, pcm: bytes) -> bytes:
        if self._stretch is None and self._resampler is None:
            return pcm
        samples: Samples = np.frombuffer(pcm, np.int16)
        if self._stretch is not None:
            samples = self._stretch.feed(samples)
        return (self._resampler.feed(samples) if self._resampler else samples).tobytes()

    def finish(self) -> bytes:
        """What the filters still hold."""
        tail: Samples = self._stretch.finish() if self._stretch is not None else np.zeros(0, np.int16)
        if self._resampler is not None:
            tail = np.concatenate([self._resampler.feed(tail), self._resampler.finish()])
        return tail.tobytes()
