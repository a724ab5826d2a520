"""Clips of every kind, good and bad. Decoding runs in real child processes, as in production."""

import asyncio
import io
import struct
import subprocess
import sys

import av
import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from speechmill.api.errors import ApiError
from speechmill.api.references import decode, decode_child
from speechmill.api.references.clip import Clip
from speechmill.api.references.decode import decode_clip, sniff
from speechmill.configs.settings import Limits, Settings

from .clips import TONE_HZ, encode, pitch, tone, wav

SETTINGS = Settings()
PARAM = "items[1].ref_audio"
UNKNOWN = 0xFFFFFFFF
MAGICS = (b"RIFF\0\0\0\0WAVE", b"\0\0\0\x20ftypM4A ", b"fLaC", b"OggS", b"\x1aE\xdf\xa3", b"ID3\4\0\0", b"\xff\xfb\x90")


def decoded(data: bytes) -> Clip:
    return asyncio.run(decode_clip(data, SETTINGS, PARAM))


def refusal(data: bytes, within: Settings = SETTINGS) -> str:
    with pytest.raises(ApiError) as caught:
        asyncio.run(decode_clip(data, within, PARAM))
    assert (caught.value.status, caught.value.param) == (400, PARAM)
    return caught.value.code


@pytest.mark.parametrize(
    ("container", "codec", "rate"),
    [
        ("wav", "pcm_s16le", 8_000),
        ("wav", "pcm_u8", 24_000),
        ("wav", "pcm_s24le", 192_000),
        ("wav", "pcm_f32le", 44_100),
        ("wav", "pcm_f64le", 16_000),
        ("mp3", "libmp3lame", 22_050),
        ("flac", "flac", 48_000),
        ("ogg", "libopus", 48_000),
        ("adts", "aac", 24_000),
        ("ipod", "aac", 44_100),
        ("mp4", "aac", 24_000),
        ("webm", "libopus", 48_000),
    ],
)
def test_every_container_is_really_decoded(container: str, codec: str, rate: int) -> None:
    clip = decoded(encode(tone(2.0, rate)[None], rate, container, codec))
    assert clip.sample_rate == rate
    assert clip.seconds == pytest.approx(2.0, abs=0.06)
    assert pitch(clip.samples, rate) == pytest.approx(TONE_HZ, abs=1)
    assert np.abs(clip.samples[rate // 2 : rate]).max() == pytest.approx(0.5, abs=0.06)
    assert clip.samples.dtype == np.float32


def test_a_tag_in_front_hides_nothing() -> None:
    tag = b"ID3\4\0\0" + bytes((0, 0, 2, 0)) + bytes(256)
    for container, codec in (("mp3", "libmp3lame"), ("adts", "aac"), ("flac", "flac"), ("wav", "pcm_s16le")):
        data = tag + encode(tone(2.0, 24_000)[None], 24_000, container, codec)
        assert decoded(data).seconds == pytest.approx(2.0, abs=0.1)


def test_channels_are_mixed_by_mean() -> None:
    voice = tone(1.5, 16_000)
    assert np.abs(decoded(encode(np.stack([voice, -voice]), 16_000)).samples).max() == 0


@pytest.mark.parametrize(("container", "codec"), [("wav", "pcm_f32le"), ("ipod", "aac"), ("webm", "libopus")])
def test_eight_channels_are_fine_in_any_layout(container: str, codec: str) -> None:
    voice = tone(2.0, 48_000)
    samples = decoded(encode(np.stack([voice, *[np.zeros_like(voice)] * 7]), 48_000, container, codec)).samples
    assert pitch(samples, 48_000) == pytest.approx(TONE_HZ, abs=1)
    assert np.abs(samples[24_000:48_000]).max() == pytest.approx(0.5 / 8, abs=0.005)


def test_vorbis_is_decoded_too() -> None:
    file = io.BytesIO()
    soundfile.write(file, tone(2.0, 24_000), 24_000, format="OGG", subtype="VORBIS")
    clip = decoded(file.getvalue())
    assert clip.seconds == pytest.approx(2.0, abs=0.02)
    assert pitch(clip.samples, 24_000) == pytest.approx(TONE_HZ, abs=1)


def test_samples_that_are_no_numbers_become_silence() -> None:
    voice = tone(1.5, 16_000)
    voice[[10, 20, 30]] = np.nan, np.inf, -np.inf
    samples = decoded(encode(voice[None], 16_000)).samples
    assert list(samples[[10, 20, 30]]) == [0, 0, 0]
    assert np.isfinite(samples).all()


def test_the_same_sound_has_the_same_name_whatever_it_is_packed_in() -> None:
    voice = np.round(tone(1.5, 16_000)[None] * 32768) / 32768
    voice = voice.astype(np.float32)
    packed = [encode(voice, 16_000, *kind) for kind in (("wav", "pcm_s16le"), ("flac", "flac"), ("wav", "pcm_f32le"))]
    names = {decoded(data).sha256 for data in packed}
    assert len(names) == 1
    assert decoded(encode(voice, 24_000)).sha256 not in names


def test_a_clip_goes_into_a_wav_and_comes_out_the_same() -> None:
    clip = decoded(wav())
    assert decoded(clip.wav()).sha256 == clip.sha256


def test_a_streamed_wav_of_unknown_length_is_decoded_to_its_end() -> None:
    data = bytearray(encode(tone(2.0, 24_000)[None], 24_000, "wav", "pcm_s16le"))
    at = data.index(b"data")
    data[4:8] = data[at + 4 : at + 8] = struct.pack("<I", UNKNOWN)
    assert decoded(bytes(data)).seconds == 2.0


@pytest.mark.parametrize(
    ("container", "codec"),
    [
        ("wav", "pcm_s16le"),
        ("mp3", "libmp3lame"),
        ("flac", "flac"),
        ("ogg", "libopus"),
        ("adts", "aac"),
        ("webm", "libopus"),
    ],
)
def test_a_file_that_ends_early_is_decoded_as_far_as_it_goes(container: str, codec: str) -> None:
    data = encode(tone(4.0, 48_000)[None], 48_000, container, codec)
    assert 1.5 < decoded(data[: len(data) * 6 // 10]).seconds < 3.0


def test_the_first_sound_of_a_film_is_taken() -> None:
    data = encode(np.stack([tone(2.0, 24_000)] * 2), 24_000, "matroska", "aac")
    assert decoded(data).seconds == pytest.approx(2.0, abs=0.1)


def test_samples_that_are_no_sound_are_refused_and_loud_ones_taken() -> None:
    for scale, taken in ((4.0, True), (1e38, False)):
        file = io.BytesIO()
        soundfile.write(file, tone(2.0, 16_000) * scale, 16_000, format="WAV", subtype="FLOAT")
        if taken:
            assert np.abs(decoded(file.getvalue()).samples).max() > 1
        else:
            assert refusal(file.getvalue()) == "ref_audio_invalid"


@pytest.mark.parametrize(("seconds", "code"), [(0.99, "ref_audio_too_short"), (30.01, "ref_audio_too_long")])
def test_the_length_has_its_bounds(seconds: float, code: str) -> None:
    assert refusal(wav(seconds, 8_000)) == code


@pytest.mark.parametrize("seconds", [1.0, 30.0])
def test_the_bounds_themselves_are_fine(seconds: float) -> None:
    assert decoded(wav(seconds, 8_000)).seconds == seconds


@pytest.mark.parametrize("container", ["adts", "mp4"])
def test_the_padding_of_whole_frames_makes_no_clip_too_long(container: str) -> None:
    assert decoded(encode(tone(30.0, 24_000)[None], 24_000, container, "aac")).seconds == 30.0
    assert refusal(encode(tone(30.1, 24_000)[None], 24_000, container, "aac")) == "ref_audio_too_long"


@pytest.mark.parametrize(("rate", "channels"), [(7_999, 1), (192_001, 1), (16_000, 16)])
def test_a_rate_or_a_number_of_channels_out_of_bounds_is_refused(rate: int, channels: int) -> None:
    assert refusal(wav(1.5, rate, channels)) == "ref_audio_invalid"


def test_a_small_file_with_hours_in_it_is_not_decoded_to_its_end() -> None:
    hours = encode(np.zeros((1, 8_000 * 3600), np.float32), 8_000, "flac", "flac")
    assert len(hours) < SETTINGS.limits.ref_audio_bytes
    rate, samples = decode_child.decode(hours, "flac", 30.0)
    assert len(samples) < 35 * rate
    assert refusal(hours) == "ref_audio_too_long"


def test_more_bytes_than_allowed_are_refused_undecoded() -> None:
    tight = SETTINGS.model_copy(update={"limits": Limits(ref_audio_bytes=1000)})
    assert refusal(wav(), tight) == "ref_audio_too_large"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"clip",
        b"#EXTM3U\n#EXTINF:10,\nhttp://169.254.169.254/\n",
        b"ffconcat version 1.0\nfile /etc/passwd\n",
        b"v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\nm=audio 5004 RTP/AVP 0\r\n",
        b"[playlist]\nFile1=/etc/passwd\n",
        b"ID3\4\0\0\0\0\0\x05abcde#EXTM3U\nhttp://127.0.0.1/\n",
        b"ID3\4\0\0\0\0\0\0" * 100_000,
        b"<?xml version='1.0'?><MPD></MPD>",
        b"\x89PNG\r\n\x1a\n",
        b"\xff\xff\xff\xff",
    ],
)
def test_what_is_no_sound_is_refused(data: bytes) -> None:
    assert refusal(data) == "ref_audio_invalid"


def test_a_playlist_never_reaches_a_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "_run_child", None)
    assert refusal(b"#EXTM3U\nfile:///etc/passwd\n") == "ref_audio_invalid"


def test_a_film_without_sound_is_refused() -> None:
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as film:
        stream = film.add_stream("mpeg4", rate=10)
        stream.width = stream.height = 16
        stream.pix_fmt = "yuv420p"
        picture = av.VideoFrame(16, 16, "yuv420p")
        film.mux(stream.encode(picture))
        film.mux(stream.encode(None))
    assert refusal(file.getvalue()) == "ref_audio_invalid"


@pytest.mark.parametrize(("limit", "value"), [("MEMORY_BYTES", 1 << 20), ("WALL_S", 0.01), ("CPU_S", 0)])
def test_a_clip_that_takes_too_much_is_refused(limit: str, value: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, limit, value)
    assert refusal(wav(20.0, 48_000)) == "ref_audio_invalid"


def test_the_child_can_open_neither_files_nor_connections() -> None:
    program = f"""
import runpy, socket
child = runpy.run_path({decode_child.__file__!r})
child["limit"](5, 512 << 20)
for reach in (lambda: open("/etc/passwd"), socket.socket):
    try:
        reach()
    except OSError:
        continue
    raise SystemExit(1)
"""
    assert subprocess.run([sys.executable, "-I", "-c", program], check=False).returncode == 0


@given(st.sampled_from((b"", *MAGICS)), st.binary(max_size=64))
def test_sniffing_takes_any_bytes(magic: bytes, rest: bytes) -> None:
    assert sniff(magic + rest) in (None, "wav", "mp4", "flac", "ogg", "matroska", "mp3", "aac")


@settings(max_examples=10)
@given(st.sampled_from(MAGICS), st.binary(max_size=4096))
def test_random_bytes_behind_any_magic_are_refused_and_nothing_else(magic: bytes, rest: bytes) -> None:
    assert refusal(magic + rest) in ("ref_audio_invalid", "ref_audio_too_short")


CLIPS = [
    encode(tone(1.5, 24_000)[None], 24_000, *kind)
    for kind in (("mp3", "libmp3lame"), ("ipod", "aac"), ("flac", "flac"), ("wav", "pcm_s16le"))
]


@settings(max_examples=10)
@given(st.sampled_from(CLIPS), st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), min_size=1, max_size=20))
def test_damaged_clips_are_decoded_or_refused_and_nothing_else(clip: bytes, damage: list[tuple[int, int]]) -> None:
    data = bytearray(clip)
    for at, value in damage:
        data[at] = value
    try:
        decoded(bytes(data))
    except ApiError as error:
        assert error.code.startswith("ref_audio_")  # noqa: PT017  both ways are right
