"""Words with times → cues that a person can read."""

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from speechmill.infra.subtitles import CUE_CHARS, CUE_MS, cues, srt, vtt

SENTENCES = [
    {"word": "Hello", "start_ms": 0, "end_ms": 400},
    {"word": "there.", "start_ms": 400, "end_ms": 900},
    {"word": "A<B", "start_ms": 1000, "end_ms": 3_661_234},
]


def test_a_sentence_ends_a_cue() -> None:
    assert [cue.text for cue in cues(SENTENCES)] == ["Hello there.", "A<B"]


def test_an_abbreviation_does_not() -> None:
    words = [{"word": word, "start_ms": at * 300, "end_ms": at * 300 + 300} for at, word in enumerate(("Dr.", "Smith"))]
    assert [cue.text for cue in cues(words)] == ["Dr. Smith"]


def test_subrip_has_numbers_and_commas() -> None:
    assert srt(SENTENCES) == (
        "1\n00:00:00,000 --> 00:00:00,900\nHello there.\n\n2\n00:00:01,000 --> 01:01:01,234\nA<B\n"
    )


def test_webvtt_has_a_header_and_escapes_markup() -> None:
    assert vtt(SENTENCES).startswith("WEBVTT\n\n00:00:00.000 --> 00:00:00.900\nHello there.\n")
    assert vtt(SENTENCES).endswith("A&lt;B\n")


def test_nothing_said_is_an_empty_file() -> None:
    assert srt([]) == ""
    assert vtt([]) == "WEBVTT\n"


@st.composite
def spoken(draw: st.DrawFn) -> list[dict[str, Any]]:
    words, at = [], 0
    for _ in range(draw(st.integers(0, 40))):
        start = at + draw(st.integers(0, 900))
        at = start + draw(st.integers(1, 1500))
        text = draw(st.text(st.characters(categories=("L", "N", "P")), min_size=1, max_size=30))
        words.append({"word": text, "start_ms": start, "end_ms": at})
    return words


@given(spoken())
def test_every_word_is_shown_once_in_cues_that_do_not_overlap(words: list[dict[str, Any]]) -> None:
    shown = cues(words)
    assert " ".join(cue.text for cue in shown).split() == [word["word"] for word in words]
    assert all(before.end_ms <= after.start_ms for before, after in pairwise(shown))
    for cue in shown:
        assert len(cue.text) <= CUE_CHARS or " " not in cue.text.replace("\n", " ")
        assert cue.end_ms - cue.start_ms <= CUE_MS or len(cue.text.split()) == 1
