"""Text → phonemes of the embedded voice, for anything that a user types."""

from functools import cache

import pytest
from hibari import Hibari
from hypothesis import given
from hypothesis import strategies as st

from speechmill.models.hibari.text import MAX_PHONEMES, Reader, Utterance

SENTENCES = [
    "Hello there.",
    "The birch canoe slid on the smooth planks.",
    "Dr. Smith paid $9.99 at 7:30 pm, didn't he?",
    "Xylotherm's new (and only) model — the ZX-81 — isn't cheap!",
]
PAUSE = Utterance()
COMMA_AND_FULL_STOP = (3, 4)


@cache
def reader() -> Reader:
    return Reader()


@cache
def wheel() -> Hibari:
    return Hibari()


def words(text: str) -> list[str]:
    return [word.text for utterance in reader().read(text) for word in utterance.words]


def test_the_spec_example_has_its_ids() -> None:
    assert reader().read("Hello there.")[0].ids == (0, 50, 83, 54, 156, 31, 16, 81, 156, 86, 123, 4, 0)


@pytest.mark.parametrize("text", SENTENCES)
def test_ordinary_sentences_have_the_ids_that_the_wheel_gives_them(text: str) -> None:
    assert [list(utterance.ids) for utterance in reader().read(text)] == [
        wheel().ids(phonemes) for phonemes in wheel().phonemize(text)
    ]


@pytest.mark.parametrize("text", SENTENCES)
def test_every_spoken_word_is_told_as_the_user_wrote_it(text: str) -> None:
    assert words(text) == [word for word in text.split() if word != "—"]


def test_a_number_is_one_word_however_many_words_say_it() -> None:
    utterance = reader().read("It cost $1,250.50 then.")[0]
    assert [word.text for word in utterance.words] == ["It", "cost", "$1,250.50", "then."]
    assert utterance.words[2].end - utterance.words[2].start > 30


@pytest.mark.parametrize("text", ["...", "—", "?!", "😀", "- - -"])
def test_text_without_letters_is_a_pause(text: str) -> None:
    assert reader().read(text) == [PAUSE]


def test_a_sentence_of_punctuation_inside_a_text_is_a_pause() -> None:
    assert [bool(utterance.ids) for utterance in reader().read("Wait. ... Go on.")] == [True, False, True]


def test_letters_that_cannot_be_pronounced_give_nothing() -> None:
    assert reader().read("你好，世界。") == []


def test_emoji_and_control_characters_are_passed_over() -> None:
    assert reader().read("Hello\x07 there 😀.") == reader().read("Hello there 😀.")
    assert words("Hello 😀 there.") == ["Hello", "there."]


@pytest.mark.parametrize("text", ["1" * 400, "9" * 20, "https://example.org/a/b?c=d&e=f", "a" * 400, "a①b ٣५ x²"])
def test_runs_of_digits_and_addresses_are_read(text: str) -> None:
    assert reader().read(text)[0].ids


def test_a_long_sentence_is_cut_at_clause_marks() -> None:
    clause = "and the quick brown fox jumps over the lazy dog again"
    sentence = ", ".join([clause] * 15) + "."
    utterances = reader().read(sentence)
    assert len(utterances) > 1
    assert all(len(utterance.ids) <= MAX_PHONEMES + 2 for utterance in utterances)
    assert all(utterance.ids[-2] in COMMA_AND_FULL_STOP for utterance in utterances)
    assert words(sentence) == sentence.split()


def test_a_long_sentence_without_clauses_is_cut_at_spaces() -> None:
    sentence = " ".join(["banana"] * 120)
    utterances = reader().read(sentence)
    assert all(len(utterance.ids) <= MAX_PHONEMES + 2 for utterance in utterances)
    assert words(sentence) == sentence.split()


@given(
    st.one_of(
        st.text(max_size=120),
        st.text("ab 1.,-/'²①٣५😀你\u200b\x1b\n—…%$#@", max_size=400),
        st.text("0123456789,.:/-", max_size=400),
    )
)
def test_anything_can_be_read_and_words_stay_in_order(text: str) -> None:
    for utterance in reader().read(text):
        assert len(utterance.ids) <= MAX_PHONEMES + 2
        edges = [edge for word in utterance.words for edge in (word.start, word.end)]
        assert edges == sorted(edges)
        assert not edges or 0 < edges[0] < edges[-1] < len(utterance.ids)
