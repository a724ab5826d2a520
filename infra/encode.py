"""PCM (s16le, interleaved) into the six audio formats: chunk by chunk for listeners, whole for files.

One encoder makes one stream. Every chunk that goes in holds whole frames (one sample per channel).
"""

import io
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import BinaryIO, Literal, Protocol, cast

import av
import numpy as np
from av.audio.stream import AudioStream

AudioFormat = Literal["wav", "mp3", "flac", "opus", "aac", "pcm"]

MEDIA_TYPES: dict[AudioFormat, str] = {
    "wav": "audio/wav",
    "mp3": "audio/mpeg",
    "flac": "audio/flac",
    "opus": "audio/ogg",
    "aac": "audio/aac",
    "pcm": "audio/pcm",
}
EXTENSIONS: dict[AudioFormat, str] = {
    "wav": "wav",
    "mp3": "mp3",
    "flac": "flac",
    "opus": "ogg",
    "aac": "aac",
    "pcm": "pcm",
}
WAV_MAX_BYTES = 4_294_967_258
"""Most data bytes of a RIFF file; a longer one is RF64."""
_UNKNOWN = 0xFFFFFFFF


class Encoder(Protocol):
    """All answers, in order, are one valid stream; what stands in front of the audio comes with the first of them."""

    def feed(self, pcm: bytes) -> bytes: ...

    def finish(self) -> bytes: ...


def encoder(
    format: AudioFormat,
    sample_rate: int,
    channels: int,
    streaming: bool = True,
    total_frames: int | None = None,
) -> Encoder:
    """An encoder for a listener; with `streaming=False` its bytes are a complete file, as `complete_file` writes it.

    A complete file comes chunk by chunk when it is PCM, or WAV with `total_frames`, which the audio must then match;
    otherwise `finish` answers all of it.
    """
    sound = _Sound(sample_rate, channels)
    if format == "pcm" or (format == "wav" and (streaming or total_frames is not None)):
        header = wav_header(sample_rate, channels, None if streaming else total_frames) if format == "wav" else b""
        expected = None if streaming or total_frames is None else total_frames * sound.frame_bytes
        return _Raw(header, expected)
    return _Streamed(format, sound) if streaming else _Buffered(format, sound)


def complete_file(format: AudioFormat, chunks: Iterable[bytes], sample_rate: int, channels: int, file: BinaryIO) -> int:
    """Writes a complete file to `file`, which must be empty, readable and seekable; answers the number of frames."""
    writer = file_writer(format, sample_rate, channels, file)
    length = 0
    for pcm in chunks:
        writer.write(pcm)
        length += len(pcm)
    writer.finish()
    return length // (2 * channels)


def encoded_rate(format: AudioFormat, sample_rate: int) -> int:
    """The rate of the encoded audio: the smallest that the format has at or above the given one, else its highest."""
    return _CODECS[format].rate(sample_rate) if format in _CODECS else sample_rate


def wav_header(sample_rate: int, channels: int, total_frames: int | None) -> bytes:
    """44 bytes; sizes are 0xFFFFFFFF when the length is unknown. 80 bytes (RF64) for more than `WAV_MAX_BYTES`."""
    frame_bytes = 2 * channels
    shape = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, channels, sample_rate, sample_rate * frame_bytes, frame_bytes, 16)
    if total_frames is None:
        return struct.pack("<4sI4s", b"RIFF", _UNKNOWN, b"WAVE") + shape + struct.pack("<4sI", b"data", _UNKNOWN)
    data = total_frames * frame_bytes
    if data <= WAV_MAX_BYTES:
        return struct.pack("<4sI4s", b"RIFF", 36 + data, b"WAVE") + shape + struct.pack("<4sI", b"data", data)
    sizes = struct.pack("<4sIQQQI", b"ds64", 28, 72 + data, data, total_frames, 0)
    return struct.pack("<4sI4s", b"RF64", _UNKNOWN, b"WAVE") + sizes + shape + struct.pack("<4sI", b"data", _UNKNOWN)


@dataclass(frozen=True, slots=True)
class _Sound:
    sample_rate: int
    channels: int

    @property
    def frame_bytes(self) -> int:
        return 2 * self.channels

    @property
    def layout(self) -> str:
        return {1: "mono", 2: "stereo"}[self.channels]


@dataclass(frozen=True, slots=True)
class _Codec:
    """How FFmpeg makes one format; options of the muxer differ between a stream and a file."""

    container: str
    name: str
    rates: tuple[int, ...]
    """Rising."""
    bit_rate: int = 0
    options: dict[str, str] = field(default_factory=dict)
    stream_options: dict[str, str] = field(default_factory=dict)

    def rate(self, sample_rate: int) -> int:
        return next((rate for rate in self.rates if rate >= sample_rate), self.rates[-1])


_RATES = (8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000)
_CODECS: dict[str, _Codec] = {
    # LAME goes down to 64 kb/s by itself at 8 to 12 kHz. Without `write_xing` there is no Info header, which would need
    # the total.
    "mp3": _Codec("mp3", "libmp3lame", _RATES, 128_000, {"id3v2_version": "0"}, {"write_xing": "0"}),
    # One packet of 20 ms a page: the muxer's own second would delay the first sound by as much.
    "opus": _Codec(
        "ogg", "libopus", (8000, 12000, 16000, 24000, 48000), 64_000, stream_options={"page_duration": "20000"}
    ),
    "aac": _Codec("adts", "aac", _RATES, 96_000),
    # The padding block is 8 KiB by default.
    "flac": _Codec("flac", "flac", (*_RATES, 88200, 96000), options={"metadata_header_padding": "0"}),
}


class FileWriter(Protocol):
    """Writes a complete file as the audio comes; `finish` puts right what only the whole length decides."""

    def write(self, pcm: bytes) -> None: ...

    def finish(self) -> None: ...


class _Compressed:
    """FFmpeg into `sink`; to end a file it seeks back to its header."""

    def __init__(self, codec: _Codec, sound: _Sound, sink: "BinaryIO | _Pipe", streaming: bool) -> None:
        self._sound = sound
        self._frames = 0
        options = codec.options | (codec.stream_options if streaming else {}) | {"flush_packets": "1"}
        self._container = av.open(sink, "w", format=codec.container, options=options)
        stream = self._container.add_stream(codec.name, rate=codec.rate(sound.sample_rate), layout=sound.layout)
        self._stream = cast(AudioStream, stream)
        if codec.bit_rate:
            self._stream.bit_rate = codec.bit_rate

    def write(self, pcm: bytes) -> None:
        if pcm:
            # The stream resamples where its rate differs from the frame's.
            frame = av.AudioFrame.from_ndarray(np.frombuffer(pcm, "<i2").reshape(1, -1), "s16", self._sound.layout)
            frame.sample_rate = self._sound.sample_rate
            frame.time_base = Fraction(1, frame.sample_rate)
            frame.pts = self._frames
            self._frames += frame.samples
            self._mux(frame)

    def finish(self) -> None:
        if self._frames:
            self._mux(None)
        self._container.close()

    def _mux(self, frame: av.AudioFrame | None) -> None:
        for packet in self._stream.encode(frame):
            # LAME may end with a packet of nothing but padding, and FFmpeg's Info header counts the padding of the last
            # packet only: the file would be too long by that of the one before. Packets without bytes carry FLAC's MD5.
            if packet.duration or not packet.size:
                self._container.mux(packet)


class _WavFile:
    """Puts the header right when the length is known."""

    def __init__(self, sound: _Sound, file: BinaryIO) -> None:
        self._sound = sound
        self._file = file
        self._bytes = 0
        file.write(self._header())

    def write(self, pcm: bytes) -> None:
        self._file.write(pcm)
        self._bytes += len(pcm)

    def finish(self) -> None:
        header = self._header()
        if len(header) > 44:
            _shift(self._file, 44, len(header) - 44)
        self._file.seek(0)
        self._file.write(header)
        self._file.seek(0, io.SEEK_END)

    def _header(self) -> bytes:
        return wav_header(self._sound.sample_rate, self._sound.channels, self._bytes // self._sound.frame_bytes)


class _PcmFile:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def write(self, pcm: bytes) -> None:
        self._file.write(pcm)

    def finish(self) -> None:
        pass


def file_writer(format: AudioFormat, sample_rate: int, channels: int, file: BinaryIO) -> FileWriter:
    """A complete file into `file`, which must be empty, readable and seekable."""
    sound = _Sound(sample_rate, channels)
    if format == "pcm":
        return _PcmFile(file)
    if format == "wav":
        return _WavFile(sound, file)
    return _Compressed(_CODECS[format], sound, file, streaming=False)


def _shift(file: BinaryIO, start: int, distance: int) -> None:
    """Moves everything from `start` on towards the end, the last block first."""
    block = 1 << 24
    end = file.seek(0, io.SEEK_END)
    while end > start:
        begin = max(start, end - block)
        file.seek(begin)
        data = file.read(end - begin)
        file.seek(begin + distance)
        file.write(data)
        end = begin


class _Raw:
    """A header and the samples as they are."""

    def __init__(self, header: bytes, expected_bytes: int | None) -> None:
        self._header = header
        self._missing = expected_bytes

    def feed(self, pcm: bytes) -> bytes:
        if self._missing is not None:
            self._missing -= len(pcm)
        header, self._header = self._header, b""
        return header + pcm

    def finish(self) -> bytes:
        last = self.feed(b"")
        if self._missing:
            raise ValueError(f"the audio differs by {-self._missing} bytes from what its header says")
        return last


class _Pipe:
    """A sink that cannot seek; FFmpeg then writes nothing that it would want to change later."""

    def __init__(self) -> None:
        self._held = bytearray()

    def write(self, data: bytes) -> int:
        self._held += data
        return len(data)

    def take(self) -> bytes:
        data = bytes(self._held)
        self._held.clear()
        return data


class _Streamed:
    def __init__(self, format: AudioFormat, sound: _Sound) -> None:
        self._pipe = _Pipe()
        self._writer = _Compressed(_CODECS[format], sound, self._pipe, streaming=True)

    def feed(self, pcm: bytes) -> bytes:
        self._writer.write(pcm)
        return self._pipe.take()

    def finish(self) -> bytes:
        self._writer.finish()
        return self._pipe.take()


class _Buffered:
    def __init__(self, format: AudioFormat, sound: _Sound) -> None:
        self._file = io.BytesIO()
        self._writer = file_writer(format, sound.sample_rate, sound.channels, self._file)

    def feed(self, pcm: bytes) -> bytes:
        self._writer.write(pcm)
        return b""

    def finish(self) -> bytes:
        self._writer.finish()
        return self._file.getvalue()
