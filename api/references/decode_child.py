"""The process that decodes one clip of unknown origin: it has little memory, little time, and can open nothing.

Run as a program, by `decode.py` only: `decode_child.py CONTAINER MAX_SECONDS CPU_S MEMORY_BYTES`, the clip on its
input. It writes one line of JSON, `{"rate": …}` or `{"fault": …}`, and then the samples, float32 mono.
"""

import io
import json
import resource
import struct
import sys
from collections.abc import Iterator

import av
import numpy as np
from numpy.typing import NDArray

MAX_CHANNELS = 8
RATES = range(8_000, 192_001)
PADDED = ("aac", "mp4")
"""Containers of AAC, which comes in whole frames: up to two of them at its ends were never recorded."""
PADDING = 2 * 1024

_SHAPE = struct.pack("<HHIIHH", 1, 1, 8000, 16000, 2, 16)
_SILENCE = b"RIFF" + struct.pack("<I4s4sI16s4sI8x", 44, b"WAVE", b"fmt ", 16, _SHAPE, b"data", 8)


class Fault(Exception):
    """Why the clip is refused, in words for the one who sent it."""


def limit(cpu_s: int, memory_bytes: int) -> None:
    """From here on no file or connection can be opened."""
    decode(_SILENCE, "wav", 1.0)  # has av load what it would load later
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
    if sys.platform == "linux":  # macOS refuses to limit it
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))


def mono(frame: av.AudioFrame) -> NDArray[np.float32]:
    """The mean of a packed frame's channels."""
    channels = frame.to_ndarray().reshape(-1, frame.layout.nb_channels)
    mixed: NDArray[np.float64] = channels.mean(axis=1, dtype=np.float64)
    return mixed.astype(np.float32)


def frames(data: bytes, container: str) -> Iterator[av.AudioFrame]:
    """The frames of the first audio stream, as far as they can be decoded."""
    # with the demuxer named, nothing is probed for, and a playlist is never read as one
    with av.open(io.BytesIO(data), "r", container, {"protocol_whitelist": "pipe"}) as file:
        if not file.streams.audio:
            raise Fault("there is no sound in it")
        stream = file.streams.audio[0]
        stream.codec_context.thread_count = 1
        packets = iter(file.demux(stream))
        while True:
            try:
                packet = next(packets)
            except (StopIteration, av.FFmpegError):
                return
            try:
                yield from packet.decode()
            except av.FFmpegError:
                continue


def floats(data: bytes, container: str) -> Iterator[av.AudioFrame]:
    """The same frames with packed samples, full scale at 1, as long as their rate and channels stay what they are."""
    # PyAV miscounts the planes of eight channels, and reads beyond them: only packed frames are looked into
    convert = av.AudioResampler(format="flt")
    shape = None
    for frame in frames(data, container):
        if frame.layout.nb_channels > MAX_CHANNELS:
            raise Fault(f"it has more than {MAX_CHANNELS} channels")
        if frame.sample_rate not in RATES:
            raise Fault(f"its sample rate is not within {RATES[0]} and {RATES[-1]} Hz")
        shape = shape or (frame.sample_rate, frame.layout.name, frame.format.name)
        if shape != (frame.sample_rate, frame.layout.name, frame.format.name):
            break
        yield from convert.resample(frame)


def decode(data: bytes, container: str, max_seconds: float) -> tuple[int, NDArray[np.float32]]:
    """Sample rate and samples, a tenth beyond `max_seconds` at most. Raises Fault."""
    parts: list[NDArray[np.float32]] = []
    rate, length = 0, 0
    for frame in floats(data, container):
        rate = frame.sample_rate
        parts.append(mono(frame))
        length += len(parts[-1])
        if length > 1.1 * max_seconds * rate:
            break
    if not length:
        raise Fault("nothing in it can be decoded")
    most = round(max_seconds * rate)
    if container in PADDED and length <= most + PADDING:
        length = min(length, most)
    return rate, np.nan_to_num(np.concatenate(parts)[:length], nan=0.0, posinf=0.0, neginf=0.0)


def answer(payload: bytes = b"", **head: int | str) -> None:
    sys.stdout.buffer.write(json.dumps(head).encode() + b"\n" + payload)


def main() -> None:
    container, max_seconds, cpu_s, memory_bytes = sys.argv[1:]
    data = sys.stdin.buffer.read()
    limit(int(cpu_s), int(memory_bytes))
    try:
        rate, samples = decode(data, container, float(max_seconds))
    except Fault as fault:
        answer(fault=str(fault))
    except (av.FFmpegError, MemoryError, ValueError):
        answer(fault="it cannot be decoded")
    else:
        answer(samples.astype("<f4", copy=False).tobytes(), rate=rate)


if __name__ == "__main__":
    main()
