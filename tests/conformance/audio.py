"""What came as audio, taken apart by decoders that the farm does not use for it: bytes, magic, frames."""

import io
import re
import struct
from dataclasses import dataclass
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

from .values import Variables

MOST_QUIET = 0.01
"""Loudest sample of something that counts as silent, of full scale."""
UNKNOWN = 0xFFFFFFFF
_HEADER = struct.Struct("<4sI4s4sIHHIIHH4sI")
_SECOND_HEADER = re.compile(rb"RIFF.{4}WAVE", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Audio:
    """A whole answer, and what it decodes to."""

    data: bytes
    samples: NDArray[np.int16]
    """One row for each frame."""
    rate: int

    @property
    def seconds(self) -> float:
        return len(self.samples) / self.rate


def container_of(data: bytes) -> str:
    """By magic bytes; `pcm` for what has none."""
    if data[:4] in (b"RIFF", b"RF64") and data[8:12] == b"WAVE":
        return "wav"
    if data[:4] == b"fLaC":
        return "flac"
    if data[:4] == b"OggS" and b"OpusHead" in data[:64]:
        return "opus"
    if data[:3] == b"ID3":
        return "mp3"
    if data[:1] == b"\xff" and data[1] & 0xE0 == 0xE0:
        return {0b00: "aac", 0b01: "mp3"}.get(data[1] >> 1 & 0b11, "unknown")
    return "pcm"


def check_audio(data: bytes, wanted: dict[str, Any], declared_rate: int | None, saved: Variables) -> Audio:
    """Everything that a case may ask of audio. `declared_rate`: of the header `X-Sample-Rate`, if one came."""
    container = wanted["container"]
    assert data, "no audio came"
    # samples may look like anything, so PCM is only told from what is surely something else
    assert container_of(data) == container or (container == "pcm" and data[:4] not in (b"RIFF", b"OggS", b"fLaC"))
    channels = wanted.get("channels", 1)
    audio = _read(data, container, wanted, declared_rate, channels)
    if container != "opus":
        for rate in (wanted.get("sample_rate"), declared_rate):
            assert rate in (None, audio.rate), f"expected {rate} Hz, got {audio.rate}"
    assert audio.samples.shape[1] == channels, f"{audio.samples.shape[1]} channels"
    assert audio.seconds >= wanted.get("min_seconds", 0.02), f"only {audio.seconds:.3f} s"
    assert audio.seconds <= wanted.get("max_seconds", float("inf")), f"as much as {audio.seconds:.3f} s"
    if wanted.get("not_silent", True):
        assert np.abs(audio.samples.astype(np.int32)).max() > MOST_QUIET * 32768, "silence"
    if "save_as" in wanted:
        saved[wanted["save_as"]] = audio
    return audio


def _read(data: bytes, container: str, wanted: dict[str, Any], declared_rate: int | None, channels: int) -> Audio:
    if container == "pcm":
        return Audio(data, _frames(data, channels), wanted.get("sample_rate") or declared_rate or 24_000)
    if container == "wav":
        return _read_wav(data, wanted.get("wav_sizes"))
    return _decode(data)


def _frames(pcm: bytes, channels: int) -> NDArray[np.int16]:
    assert len(pcm) % (2 * channels) == 0, "a frame is cut"
    return np.frombuffer(pcm, "<i2").reshape(-1, channels)


def _read_wav(data: bytes, sizes: str | None) -> Audio:
    riff, size, wave, fmt, fmt_size, tag, channels, rate, byte_rate, align, bits, mark, data_size = _HEADER.unpack_from(
        data
    )
    assert (riff, wave, fmt, fmt_size, tag, bits, mark) == (b"RIFF", b"WAVE", b"fmt ", 16, 1, 16, b"data")
    assert (byte_rate, align) == (rate * channels * 2, channels * 2)
    body = data[_HEADER.size :]
    assert not _SECOND_HEADER.search(body), "a second header inside of the data"
    exact = (size, data_size) == (36 + len(body), len(body))
    streaming = (size, data_size) == (UNKNOWN, UNKNOWN)
    assert {"exact": exact, "streaming": streaming, None: exact or streaming}[sizes], f"sizes {size}, {data_size}"
    return Audio(data, _frames(body, channels), rate)


def _decode(data: bytes) -> Audio:
    with av.open(io.BytesIO(data), "r") as file:
        stream = file.streams.audio[0]
        rate, channels = stream.rate, stream.channels
        resampler = av.AudioResampler("s16", stream.layout, rate)
        frames = [made for frame in file.decode(stream) for made in resampler.resample(frame)]
        frames += resampler.resample(None)
        parts = [frame.to_ndarray().reshape(-1, channels) for frame in frames]
    assert parts, "nothing to decode"
    return Audio(data, np.concatenate(parts), rate)


def compare(what: str, a: Audio, b: Audio, options: dict[str, Any], saved: Variables) -> None:
    """One `compare` step. Raises AssertionError."""
    low, high = options.get("min", float("-inf")), options.get("max", float("inf"))
    if what == "pcm_equal":
        assert a.rate == b.rate
        assert np.array_equal(a.samples, b.samples)
    elif what == "bytes_equal":
        assert a.data == b.data
    elif what == "frames_equal":
        assert len(a.samples) == len(b.samples)
    elif what == "seconds_ratio":
        assert low <= a.seconds / b.seconds <= high, f"{a.seconds} to {b.seconds} s"
    elif what == "seconds_diff":
        assert low <= a.seconds - b.seconds <= high, f"{a.seconds} and {b.seconds} s"
    else:
        assert what == "concat_equal"
        assert np.array_equal(np.concatenate([a.samples, b.samples]), saved[options["c"]].samples)
