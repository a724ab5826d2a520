"""Tempo and sample rate, as streams."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechmill.workers.filters import Filters

RATE = 8000


def tone(seconds: float, hz: float = 220.0) -> bytes:
    t = np.arange(int(seconds * RATE)) / RATE
    return (8000 * np.sin(2 * np.pi * hz * t)).astype("<i2").tobytes()


def whole(filters: Filters, pcm: bytes) -> bytes:
    return filters.feed(pcm) + filters.finish()


@given(
    cuts=st.lists(st.integers(1, 2000), min_size=1, max_size=8),
    out_hz=st.sampled_from([8000, 11_025, 16_000, 24_000]),
    tempo=st.sampled_from([0.25, 0.5, 0.9, 1.0, 1.3, 2.0, 4.0]),
    channels=st.sampled_from([1, 2]),
)
def test_the_result_does_not_depend_on_how_the_input_is_cut(
    cuts: list[int], out_hz: int, tempo: float, channels: int
) -> None:
    pcm = tone(0.3 * channels)
    filters, made, at = Filters(RATE, out_hz, channels, tempo), b"", 0
    for cut in cuts * 20:
        made += filters.feed(pcm[at : at + 2 * channels * cut])
        at += 2 * channels * cut
    made += filters.feed(pcm[at:]) + filters.finish()
    once = np.frombuffer(whole(Filters(RATE, out_hz, channels, tempo), pcm), "<i2").astype(int)
    cut_up = np.frombuffer(made, "<i2").astype(int)
    assert len(once) == len(cut_up)
    assert np.abs(once - cut_up).max(initial=0) <= 1


@pytest.mark.parametrize("tempo", [0.25, 0.5, 0.8, 1.25, 2.0, 4.0])
def test_tempo_changes_the_length_exactly_and_keeps_the_pitch(tempo: float) -> None:
    made = np.frombuffer(whole(Filters(RATE, RATE, 1, tempo), tone(1.0)), "<i2")
    assert len(made) == round(RATE / tempo)
    spectrum = np.abs(np.fft.rfft(made * np.hanning(len(made))))
    assert abs(spectrum.argmax() * RATE / len(made) - 220) < 4
    assert 5000 < made.std() * np.sqrt(2) < 9000


@pytest.mark.parametrize("out_hz", [8000, 11_025, 16_000, 22_050, 44_100, 48_000])
def test_another_rate_has_the_same_duration_and_pitch(out_hz: int) -> None:
    made = np.frombuffer(whole(Filters(RATE, out_hz, 1, 1.0), tone(1.0)), "<i2")
    assert len(made) == out_hz
    spectrum = np.abs(np.fft.rfft(made * np.hanning(len(made))))
    assert spectrum.argmax() == 220


def test_silence_and_nothing_pass_through() -> None:
    assert whole(Filters(RATE, 16_000, 1, 0.5), b"") == b""
    assert whole(Filters(RATE, 16_000, 1, 2.0), bytes(2)) in (b"", bytes(2))
