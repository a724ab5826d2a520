"""What is streamed is what is stored: decoded by libsndfile, of the right length, without clicks where chunks meet."""

import base64
import io
import json
from typing import Any

import av
import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray

from .test_fields import PRESET, speak

TEXT = "The birch canoe slid on the smooth planks. Glue the sheet to the dark blue background. "
UNIT = 1.001 / 32768
"""One step of s16."""
CLICK_ENERGY = 0.005
"""What two encodings of nearly the same sound may differ by."""
CODEC_FRAME_S = {"mp3": 1152 / 24_000, "aac": 1024 / 24_000, "opus": 0.02, "flac": 0, "wav": 0, "pcm": 0}
Samples = NDArray[np.float64]


def spoken(server: str, **fields: Any) -> bytes:
    answer = speak(server, {"input": TEXT, "seed": 5, **fields})
    assert answer.status_code == 200, answer.text
    if not answer.headers["content-type"].startswith("text/event-stream"):
        return answer.content
    events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
    assert events[-1]["type"] == "speech.audio.done"
    return b"".join(base64.b64decode(event["audio"]) for event in events[:-1])


def samples(data: bytes, container: str, rate: int) -> Samples:
    if container == "pcm":
        return np.frombuffer(data, "<i2") / 32768
    if container in ("aac", "flac"):  # libsndfile has no AAC, and no FLAC without a length
        return _by_ffmpeg(data, container)
    decoded, found = soundfile.read(io.BytesIO(data))
    assert found == rate
    return np.asarray(decoded, np.float64)


def _by_ffmpeg(data: bytes, container: str) -> Samples:
    with av.open(io.BytesIO(data), format=container) as file:
        parts = [frame.to_ndarray().reshape(-1) for frame in file.decode(audio=0)]
    sound = np.concatenate(parts)
    return sound / 32768 if sound.dtype == np.int16 else sound.astype(np.float64)


def aligned(one: Samples, other: Samples, reach: int = 4000) -> tuple[Samples, Samples]:
    """The two with the delay of a codec between them taken out."""
    size = min(len(one), len(other), 1 << 16)
    spectrum = np.fft.rfft(one[:size], 2 * size) * np.conj(np.fft.rfft(other[:size], 2 * size))
    shift = int(np.argmax(np.concatenate([(lag := np.fft.irfft(spectrum))[-reach:], lag[:reach]]))) - reach
    one, other = (one[shift:], other) if shift >= 0 else (one, other[-shift:])
    both = min(len(one), len(other))
    return one[:both], other[:both]


@pytest.mark.parametrize(
    ("model", "container", "mode"),
    [
        *(("hibari", container, {"stream_format": "audio"}) for container in CODEC_FRAME_S),
        *((PRESET, container, {"stream": True}) for container in CODEC_FRAME_S),
    ],
    ids=repr,
)
def test_a_stream_decodes_to_what_the_whole_file_decodes_to(
    server: str, model: str, container: str, mode: dict[str, Any]
) -> None:
    fields = {"model": model, "response_format": container}
    pcm = samples(spoken(server, **{**fields, "response_format": "pcm"}), "pcm", 24_000)
    whole = samples(spoken(server, **fields), container, 24_000)
    streamed = samples(spoken(server, **fields, **mode), container, 24_000)
    rate, frame_s = 24_000, CODEC_FRAME_S[container]
    seconds = len(pcm) / rate
    # neither ADTS nor a stream can tell the decoder how much of the first and the last frame is padding
    padded_s = frame_s * (2 if container == "aac" else 1)
    assert abs(len(whole) / rate - seconds) <= padded_s + 1e-6
    assert -1e-6 <= len(streamed) / rate - seconds <= 3 * frame_s + 1e-6
    one, other = aligned(streamed, whole)
    edge = rate // 20 if frame_s else 0
    assert len(one) >= len(whole) - rate // 10
    assert not clicks(one, other)
    # a voice that computes in other chunks may differ by one unit of s16; a click would be hundreds
    assert np.abs(one - other)[edge : len(one) - edge].max() <= (0.03 if frame_s else UNIT)


def clicks(streamed: Samples, whole: Samples) -> list[int]:
    """Blocks of 10 ms in which the stream has bursts in the upper half of its spectrum that the whole file has not."""
    upper = [_upper_energy(sound) for sound in (streamed, whole)]
    return np.flatnonzero(upper[0] > 4 * upper[1] + CLICK_ENERGY).tolist()


def _upper_energy(sound: Samples) -> Samples:
    blocks = sound[: len(sound) // 240 * 240].reshape(-1, 240) * np.hanning(240)
    energy: Samples = (np.abs(np.fft.rfft(blocks))[:, 60:] ** 2).sum(axis=1)
    return energy


def test_a_click_of_a_fiftieth_of_full_scale_would_be_seen() -> None:
    tone = 0.3 * np.sin(np.arange(24_000) * 0.05)
    clicked = tone.copy()
    clicked[12_100] += 0.02
    assert clicks(clicked, tone) == [50]


@pytest.mark.parametrize("rate", [8000, 11025, 22050, 44100])
def test_any_rate_streams_the_bytes_that_a_file_holds(server: str, rate: int) -> None:
    fields = {"model": "hibari", "sample_rate": rate, "response_format": "pcm"}
    whole, native = spoken(server, **fields), spoken(server, model="hibari", response_format="pcm")
    streamed = spoken(server, **fields, stream_format="audio")
    assert len(streamed) == len(whole)
    assert np.abs(samples(streamed, "pcm", rate) - samples(whole, "pcm", rate)).max() <= 2 * UNIT
    assert abs(len(whole) / 2 / rate - len(native) / 2 / 24_000) <= 2 / rate


@pytest.mark.parametrize("model", ["hibari", PRESET])
@pytest.mark.parametrize("speed", [0.5, 2.0])
def test_speed_while_streaming_changes_the_length_alone(server: str, model: str, speed: float) -> None:
    fields = {"model": model, "response_format": "pcm", "speed": speed}
    plain = samples(spoken(server, model=model, response_format="pcm"), "pcm", 24_000)
    whole = samples(spoken(server, **fields), "pcm", 24_000)
    for mode in ({"stream_format": "audio"}, {"stream": True}):
        streamed = samples(spoken(server, **fields, **mode), "pcm", 24_000)
        assert len(streamed) == len(whole)
        assert np.abs(streamed - whole).max() <= UNIT
    # pauses between sentences keep their length, and a voice's own tempo is not quite even
    assert len(whole) / len(plain) == pytest.approx(1 / speed, rel=0.15)


def test_the_header_of_a_stream_of_wav_says_that_its_length_is_unknown(server: str) -> None:
    data = spoken(server, model="hibari", response_format="wav", stream_format="audio")
    assert data[:44] == (
        b"RIFF\xff\xff\xff\xffWAVEfmt \x10\0\0\0\x01\0\x01\0" + (24_000).to_bytes(4, "little")
        + (48_000).to_bytes(4, "little") + b"\x02\0\x10\0data\xff\xff\xff\xff"
    )  # fmt: skip
    assert b"RIFF" not in data[44:]
