"""Clips in every container that clients send, really encoded."""

import io
from typing import Any, cast

import av
import numpy as np
from av.audio.stream import AudioStream
from numpy.typing import NDArray

TONE_HZ = 440.0


def tone(seconds: float, rate: int) -> NDArray[np.float32]:
    return (0.5 * np.sin(2 * np.pi * TONE_HZ * np.arange(round(seconds * rate)) / rate)).astype(np.float32)


def encode(channels: NDArray[np.float32], rate: int, container: str = "wav", codec: str = "pcm_f32le") -> bytes:
    """Samples (channel, time) as a file."""
    layout = {1: "mono", 2: "stereo", 8: "7.1", 16: "hexadecagonal"}[len(channels)]
    interleaved = np.ascontiguousarray(channels.T).reshape(1, -1)
    frame = av.AudioFrame.from_ndarray(interleaved, format="flt", layout=layout)
    frame.sample_rate = rate
    file = io.BytesIO()
    with av.open(file, "w", format=container) as output:
        stream = cast(AudioStream, output.add_stream(cast(Any, codec), rate=rate, layout=layout))
        for some in _fitting(frame, stream):
            output.mux(stream.encode(some))
        output.mux(stream.encode(None))
    return file.getvalue()


def _fitting(frame: av.AudioFrame, stream: AudioStream) -> list[av.AudioFrame]:
    convert = av.AudioResampler(format=stream.codec_context.format, layout=stream.layout, rate=stream.rate)
    return convert.resample(frame) + convert.resample(None)


def wav(seconds: float = 2.0, rate: int = 24_000, channels: int = 1) -> bytes:
    return encode(np.stack([tone(seconds, rate)] * channels), rate)


def pitch(samples: NDArray[np.float32], rate: int) -> float:
    """The strongest frequency in Hz."""
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    return float(np.argmax(spectrum) * rate / len(samples))
