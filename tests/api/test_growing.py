"""What of a text that is still being written goes to which unit."""

from dataclasses import dataclass, field
from itertools import pairwise
from types import SimpleNamespace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from speechmill.api.errors import ApiError
from speechmill.api.realtime.growing import Growing
from speechmill.api.realtime.portion import portion

ALPHABET = 'aB1 .!?,:。，"»\n…\u0301\U0001f3fd-'
TEXTS = st.text(ALPHABET, max_size=120)
CUTS = st.lists(st.integers(0, 120), max_size=10)


@dataclass
class Unit:
    """Takes what it is given."""

    pieces: list[str] = field(default_factory=list)
    complete_at: int = 0
    fault: ApiError | None = None
    spoken: bool = False

    def append(self, text: str) -> None:
        assert not self.complete_at
        self.pieces.append(text)

    def complete(self) -> None:
        self.complete_at = len(self.pieces)

    def fail(self, error: ApiError) -> None:
        self.fault = error

    @property
    def failed(self) -> bool:
        return self.fault is not None

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class Utterances:
    """The units that are made of what is fed."""

    def __init__(self, unit_chars: int = 20, most_chars: int = 1000, refused: str = "") -> None:
        self.units: list[Unit] = []
        card = SimpleNamespace(
            segments=SimpleNamespace(max_chars=unit_chars), parameters=SimpleNamespace(refused_input=refused)
        )
        order = SimpleNamespace(card=card, terms=SimpleNamespace(max_chars=most_chars))
        self.growing = Growing(order, self._begin)  # type: ignore[arg-type]

    def _begin(self) -> Unit:
        self.units.append(Unit())
        return self.units[-1]

    def say(self, *pieces: str, done: bool = True) -> list[str]:
        for piece in pieces:
            self.growing.feed(piece)
        if done:
            self.growing.flush()
        return [unit.text for unit in self.units]


def cut(text: str, cuts: list[int]) -> list[str]:
    edges = sorted({0, len(text), *(at for at in cuts if at < len(text))})
    return [text[a:b] for a, b in pairwise(edges)]


def bare(text: str) -> str:
    return "".join(text.split())


@given(TEXTS, CUTS, st.integers(2, 30))
@example("a" * 40, [], 8)
@example("a. " * 20, [7], 8)
def test_however_a_text_is_cut_its_units_are_the_same(text: str, cuts: list[int], most: int) -> None:
    units = Utterances(most).say(text)
    assert Utterances(most).say(*cut(text, cuts)) == units
    assert Utterances(most).say(*text) == units


@given(TEXTS, CUTS, st.integers(2, 30))
def test_units_are_stripped_and_never_longer_than_the_model_speaks(text: str, cuts: list[int], most: int) -> None:
    for unit in Utterances(most).say(*cut(text, cuts)):
        assert 0 < len(unit) <= most
        assert unit == unit.strip()


@given(st.text('aB1 ,.,。\u0301"', max_size=120), CUTS, st.integers(2, 30))
def test_nothing_that_is_spoken_is_lost_or_doubled(text: str, cuts: list[int], most: int) -> None:
    spoken = bare("".join(Utterances(most).say(*cut(text, cuts))))
    assert [mark for mark in spoken if mark.isalnum()] == [mark for mark in text if mark.isalnum()]
    if text.strip() and len(text) <= most // 2:
        assert spoken == bare(text)


def test_a_text_goes_on_as_it_comes_but_for_whitespace_that_may_be_its_end() -> None:
    utterances = Utterances(100)
    utterances.say("  Hel", "lo ", " there", ".  ", done=False)
    assert utterances.units[0].pieces == ["Hel", "lo", "  there", "."]
    utterances.growing.flush()
    assert utterances.units[0].complete_at == 4


def test_a_long_text_goes_on_in_another_unit_behind_a_sentence() -> None:
    assert Utterances(20).say("One is here. Two is there. And so on.") == [
        "One is here.",
        "Two is there.",
        "And so on.",
    ]


def test_a_short_sentence_does_not_end_a_unit() -> None:
    assert Utterances(40).say("One. Two. Three.") == ["One. Two. Three."]


def test_an_abbreviation_or_a_number_does_not_end_a_unit() -> None:
    assert Utterances(30).say("This is what Dr. Smith says on 3.14 then") == [
        "This is what Dr. Smith says on",
        "3.14 then",
    ]


def test_a_long_sentence_ends_a_unit_between_words_and_a_clause_of_chinese_behind_its_mark() -> None:
    assert Utterances(20).say("one two three four five six") == ["one two three four", "five six"]
    assert Utterances(8).say("今天天气，真的很好啊") == ["今天天气，", "真的很好啊"]
    assert Utterances(8).say("今天天气真的很好啊今天") == ["今天天气真的很好", "啊今天"]


def test_one_visible_character_is_never_parted() -> None:
    assert Utterances(4).say("aaae\u0301bb") == ["aaa", "e\u0301bb"]


def test_a_word_that_may_be_cut_off_is_held_until_it_is_known_not_to_be() -> None:
    utterances = Utterances(20)
    utterances.say("one two three fo", done=False)
    assert utterances.units[0].text == "one two three"
    utterances.say("ur five", done=False)
    assert [unit.text for unit in utterances.units] == ["one two three four", "five"]


def test_marks_alone_are_no_unit_but_where_they_are_all_there_is() -> None:
    assert Utterances(20).say("... ", "!") == ["... !"]
    assert Utterances(12).say("Hello there. ", "...") == ["Hello there."]
    assert Utterances().say("  ", "") == []


def test_the_next_text_begins_another_utterance() -> None:
    utterances = Utterances()
    assert not utterances.growing.pending
    utterances.say("One", done=False)
    assert utterances.growing.pending
    utterances.growing.flush()
    assert not utterances.growing.pending
    assert utterances.say("Two") == ["One", "Two"]


@pytest.mark.parametrize(
    ("refused", "pieces", "code"),
    [("", ["Hello ", "x" * 30], "input_too_long"), ("<b>", ["a <", "b> c"], "unsupported_parameter")],
)
def test_an_utterance_that_cannot_go_on_fails_where_it_is_and_the_next_is_spoken(
    refused: str, pieces: list[str], code: str
) -> None:
    utterances = Utterances(most_chars=20, refused=refused)
    utterances.say(*pieces, "more", "and more")
    (unit,) = utterances.units
    assert unit.fault is not None
    assert (unit.fault.code, unit.fault.param, unit.pieces[1:]) == (code, "input", [])
    assert utterances.say("Next.")[1:] == ["Next."]


def test_what_follows_a_unit_that_could_not_be_spoken_is_left_out_of_the_utterance() -> None:
    utterances = Utterances(20)
    utterances.say("One is here. Two", done=False)
    utterances.units[1].fail(ApiError(429, "quota_exceeded", "no more"))
    assert utterances.say(" is there. And so", " on.") == ["One is here.", "Two"]
    assert not utterances.units[1].complete_at
    assert utterances.say("Next.")[2:] == ["Next."]


def test_a_first_piece_that_is_too_long_fails_as_well() -> None:
    utterances = Utterances(most_chars=20)
    utterances.say("x" * 30)
    assert [unit.fault is not None for unit in utterances.units] == [True]


@given(TEXTS, st.integers(2, 30))
@example("a" * 15 + "，a，，", 18)
def test_what_was_given_out_is_never_taken_back(text: str, most: int) -> None:
    given_out = 0
    for end in range(1, len(text) + 1):
        chars, ends = portion(text[:end], most)
        assert chars >= given_out or text[:end].isspace()
        if ends:
            return
        given_out = chars


def test_what_comes_after_the_model_was_through_is_the_next_unit_s() -> None:
    utterances = Utterances(unit_chars=100)
    utterances.say("Hello there", done=False)
    utterances.units[0].spoken = True
    assert utterances.say(", my", " friend.") == ["Hello there", ", my friend."]
    assert [unit.complete_at for unit in utterances.units] == [1, 2]
