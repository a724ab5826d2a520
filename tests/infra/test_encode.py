import hashlib
import io
import struct
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, cast

import av
import numpy as np
import pytest
import soundfile

from speechmill.infra import encode
from speechmill.infra.encode import AudioFormat, complete_file, encoded_rate, encoder, wav_header

COMPRESSED: list[AudioFormat] = ["mp3", "flac", "opus", "aac"]
ALL: list[AudioFormat] = ["wav", "pcm", *COMPRESSED]
RATES = (8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000)


def tone(frames: int, rate: int = 24000, channels: int = 1) -> bytes:
    wave = np.sin(2 * np.pi * 300 * np.arange(frames) / rate) * 8000
    return np.repeat(wave, channels).astype("<i2").tobytes()


def chunks(pcm: bytes, size: int = 3840) -> list[bytes]:
    return [pcm[start : start + size] for start in range(0, len(pcm), size)]


def streamed(format: AudioFormat, pcm: bytes, rate: int = 24000, channels: int = 1) -> list[bytes]:
    stream = encoder(format, rate, channels)
    return [*(stream.feed(chunk) for chunk in chunks(pcm)), stream.finish()]


def filed(format: AudioFormat, pcm: bytes, rate: int = 24000, channels: int = 1) -> bytes:
    file = io.BytesIO()
    assert complete_file(format, chunks(pcm), rate, channels, file) == len(pcm) // channels // 2
    return file.getvalue()


def decoded_frames(data: bytes) -> int:
    with av.open(io.BytesIO(data)) as container:
        return sum(frame.samples for frame in container.decode(audio=0))


def streaminfo(flac: bytes) -> tuple[int, bytes]:
    """Total samples and MD5."""
    info = flac[8:42]
    return int.from_bytes(info[13:18]) & (1 << 36) - 1, info[18:34]


def last_granule(ogg: bytes) -> tuple[int, int]:
    """Granule position and header type flags of the last page."""
    page = ogg[ogg.rindex(b"OggS") :]
    return struct.unpack_from("<q", page, 6)[0], page[5]


def test_a_streamed_wav_header_says_that_the_length_is_unknown() -> None:
    header = bytes.fromhex(
        "52494646 FFFFFFFF 57415645 666D7420 10000000 0100 0200 C05D0000 00770100 0400 1000 64617461 FFFFFFFF"
    )
    pcm = tone(8000, channels=2)
    assert b"".join(streamed("wav", pcm, channels=2)) == header + pcm


@pytest.mark.parametrize("channels", [1, 2])
def test_a_wav_file_has_exact_sizes(channels: int) -> None:
    pcm = tone(8001, channels=channels)
    data = filed("wav", pcm, 24000, channels)
    assert data[44:] == pcm
    assert data[:8] == b"RIFF" + struct.pack("<I", 36 + len(pcm))
    assert data[36:44] == b"data" + struct.pack("<I", len(pcm))
    with soundfile.SoundFile(io.BytesIO(data)) as sound:
        assert (sound.frames, sound.samplerate, sound.channels) == (8001, 24000, channels)


def test_a_wav_of_known_length_comes_chunk_by_chunk() -> None:
    pcm = tone(8000)
    stream = encoder("wav", 24000, 1, streaming=False, total_frames=8000)
    first, *rest = [stream.feed(chunk) for chunk in chunks(pcm)]
    assert first == wav_header(24000, 1, 8000) + pcm[:3840]
    assert b"".join([first, *rest, stream.finish()]) == filed("wav", pcm)


def test_a_wav_of_another_length_than_announced_is_refused() -> None:
    stream = encoder("wav", 24000, 1, streaming=False, total_frames=8000)
    stream.feed(tone(7999))
    with pytest.raises(ValueError, match="differs by -2 bytes"):
        stream.finish()


def test_the_longest_riff_file_is_followed_by_rf64() -> None:
    frames = encode.WAV_MAX_BYTES // 2
    assert struct.unpack_from("<I", wav_header(48000, 1, frames), 4) == (0xFFFFFFFF - 1,)
    header = wav_header(48000, 1, frames + 1)
    assert header[:20] == b"RF64\xff\xff\xff\xffWAVEds64" + struct.pack("<I", 28)
    assert struct.unpack_from("<QQQI", header, 20) == (72 + 2 * frames + 2, 2 * frames + 2, frames + 1, 0)
    assert header[48:72] == wav_header(48000, 1, None)[12:36]
    assert header[72:] == b"data\xff\xff\xff\xff"


def test_a_file_that_grows_beyond_riff_becomes_rf64(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode, "WAV_MAX_BYTES", 1000)
    pcm = tone(20_000_000 // 2)
    path = tmp_path / "long.wav"
    with path.open("w+b") as file:
        complete_file("wav", chunks(pcm, 1 << 20), 24000, 1, file)
    assert path.read_bytes() == wav_header(24000, 1, len(pcm) // 2) + pcm
    assert soundfile.info(path).frames == len(pcm) // 2


@pytest.mark.parametrize("format", ALL)
def test_a_buffered_encoder_gives_the_same_file(format: AudioFormat) -> None:
    pcm = tone(30_000)
    stream = encoder(format, 24000, 1, streaming=False)
    data = b"".join([*(stream.feed(chunk) for chunk in chunks(pcm)), stream.finish()])
    if format == "opus":  # The serial number of an Ogg stream is random.
        assert len(data) == len(filed(format, pcm))
        assert decoded_frames(data) == 60_000
    else:
        assert data == filed(format, pcm)


@pytest.mark.parametrize("format", ALL)
def test_a_file_may_begin_in_memory_and_go_on_on_disk(format: AudioFormat) -> None:
    pcm = tone(30_000)
    with tempfile.SpooledTemporaryFile(2000) as spool:
        complete_file(format, chunks(pcm), 24000, 1, cast(BinaryIO, spool))
        spool.seek(0)
        assert len(spool.read()) == len(filed(format, pcm))


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("extra", [0, 1, 777])
def test_mp3_flac_and_opus_files_decode_to_the_exact_length(rate: int, channels: int, extra: int) -> None:
    frames = rate // 2 + extra
    pcm = tone(frames, rate, channels)
    for format in ("mp3", "flac"):
        data = filed(format, pcm, rate, channels)
        assert decoded_frames(data) == frames
        assert soundfile.info(io.BytesIO(data)).frames == frames
    whole = -(-frames * encoded_rate("opus", rate) // rate) * 48000 // encoded_rate("opus", rate)
    for data in (filed("opus", pcm, rate, channels), b"".join(streamed("opus", pcm, rate, channels))):
        assert decoded_frames(data) == whole


@pytest.mark.parametrize("frames", [48, 1105, 1152, 96_777])
@pytest.mark.parametrize("rate", [24000, 48000])
def test_the_info_header_of_an_mp3_file_counts_all_padding(frames: int, rate: int) -> None:
    assert decoded_frames(filed("mp3", tone(frames, rate), rate)) == frames


def test_only_mp3_files_carry_an_info_header() -> None:
    pcm = tone(24000)
    assert b"Info" in filed("mp3", pcm)[:100]
    stream = b"".join(streamed("mp3", pcm))
    assert stream[0] == 0xFF
    assert b"Info" not in stream
    assert b"Xing" not in stream


@pytest.mark.parametrize(("rate", "bit_rate"), [(24000, 128_000), (48000, 128_000), (8000, 64_000)])
def test_mp3_has_a_constant_bit_rate(rate: int, bit_rate: int) -> None:
    stream = b"".join(streamed("mp3", tone(rate * 2, rate), rate))
    with av.open(io.BytesIO(stream)) as container:
        sizes = {packet.size for packet in container.demux(audio=0) if packet.size}
        assert container.streams.audio[0].bit_rate == bit_rate
    assert max(sizes) - min(sizes) <= 1


def test_flac_files_have_total_and_md5_and_streams_have_zeros() -> None:
    pcm = tone(50_000, channels=2)
    assert streaminfo(filed("flac", pcm, 24000, 2)) == (50_000, hashlib.md5(pcm, usedforsecurity=False).digest())
    assert streaminfo(b"".join(streamed("flac", pcm, 24000, 2))) == (0, bytes(16))


def test_flac_is_lossless_streamed_or_not() -> None:
    pcm = tone(50_001)
    for data in (filed("flac", pcm), b"".join(streamed("flac", pcm))):
        with av.open(io.BytesIO(data)) as container:
            frames = [frame.to_ndarray().astype("<i2").tobytes() for frame in container.decode(audio=0)]
        assert b"".join(frames) == pcm


@pytest.mark.parametrize("streaming", [True, False])
def test_the_last_opus_page_has_the_exact_granule_and_the_end_flag(streaming: bool) -> None:
    pcm = tone(24_123)
    data = b"".join(streamed("opus", pcm)) if streaming else filed("opus", pcm)
    pre_skip = struct.unpack_from("<H", data, data.index(b"OpusHead") + 10)[0]
    assert pre_skip > 0
    assert last_granule(data) == (2 * 24_123 + pre_skip, 4)


def test_streamed_opus_pages_hold_one_packet_of_20_ms() -> None:
    data = b"".join(streamed("opus", tone(24_000)))
    granules = [struct.unpack_from("<q", page, 2)[0] for page in data.split(b"OggS")[3:]]
    steps = {after - before for before, after in pairwise(granules[:-1])}
    assert steps == {960}


@pytest.mark.parametrize("format", ALL)
def test_a_stream_starts_early_and_never_pauses(format: AudioFormat) -> None:
    answers = streamed(format, tone(24_000 * 3))  # Chunks of 80 ms.
    begin = next(index for index, data in enumerate(answers) if data)
    assert begin <= 2
    later = answers[begin:-1]
    assert all(a or b for a, b in pairwise(later))


@pytest.mark.parametrize("rate", RATES)
def test_aac_is_adts_and_keeps_every_frame(rate: int) -> None:
    pcm = tone(rate, rate)
    data = b"".join(streamed("aac", pcm, rate))
    assert data[0] == 0xFF
    assert data[1] & 0xF6 == 0xF0
    # Nothing in ADTS says how much of the encoder's own 1,024 frames and of the last block is padding.
    assert rate + 1024 <= decoded_frames(data) < rate + 3 * 1024


def test_opus_takes_the_smallest_of_its_rates_that_loses_nothing() -> None:
    assert [encoded_rate("opus", rate) for rate in RATES] == [
        8000, 12000, 12000, 16000, 24000, 24000, 48000, 48000, 48000,
    ]  # fmt: skip
    assert [encoded_rate(format, 22050) for format in ALL] == [22050, 22050, 22050, 22050, 24000, 22050]
    assert encoded_rate("mp3", 96000) == 48000


def test_resampled_audio_keeps_its_pitch() -> None:
    with av.open(io.BytesIO(filed("opus", tone(44_100, 44_100), 44_100))) as container:
        wave = np.concatenate([frame.to_ndarray()[0] for frame in container.decode(audio=0)])
    assert abs(np.argmax(np.abs(np.fft.rfft(wave))) * 48_000 / len(wave) - 300) < 2


@pytest.mark.parametrize("format", ALL)
def test_nothing_in_gives_no_sound(format: AudioFormat) -> None:
    stream = encoder(format, 24000, 1)
    header = stream.feed(b"") + stream.finish()
    assert len(header) == (44 if format == "wav" else 0)


def test_an_encoder_may_be_dropped_in_the_middle() -> None:
    for format in ALL:
        encoder(format, 24000, 1).feed(tone(5000))
