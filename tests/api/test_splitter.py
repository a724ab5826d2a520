import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from speechmill.api.realtime.splitter import MAX_CHARS, Granularity, Splitter

LATE = ".!?。｡！？…।॥؟۔,;，；،\"'”’»)]}」』）】》"
"""What may belong to a unit that has closed at once."""


def split(granularity: Granularity, *feeds: str) -> tuple[list[str], list[str]]:
    """The units that come while text arrives, and those of the flush."""
    splitter = Splitter(granularity)
    return [unit for feed in feeds for unit in splitter.feed(feed)], splitter.flush()


def whole(granularity: Granularity, *feeds: str) -> list[str]:
    early, late = split(granularity, *feeds)
    return early + late


@pytest.mark.parametrize(
    ("granularity", "text", "early", "late"),
    [
        ("none", "", [], []),
        ("none", " \n ", [], []),
        ("none", " Hello. World. ", [], ["Hello. World."]),
        ("sentence", "Hello world.", [], ["Hello world."]),
        ("sentence", "Hello world. More", ["Hello world."], ["More"]),
        ("sentence", "It costs 3.14 dollars. ", ["It costs 3.14 dollars."], []),
        ("sentence", "你好。世界。", ["你好。", "世界。"], []),
        ("sentence", "नमस्ते। कैसे हो?", ["नमस्ते।"], ["कैसे हो?"]),
        ("clause", "Hello, world. ", ["Hello,", "world."], []),
        ("clause", "1,000 apples, please. ", ["1,000 apples,", "please."], []),
        ("sentence", "Dr. Smith came. ", ["Dr. Smith came."], []),
        ("clause", "It was 10", [], ["It was 10"]),
        ("clause", "It was 10,", [], ["It was 10,"]),
        ("clause", "It was 10, she said", ["It was 10,"], ["she said"]),
        ("clause", "At 10:30; then 3.5.", ["At 10:30;"], ["then 3.5."]),
        ("clause", "一，二；三،四", ["一，", "二；", "三،"], ["四"]),
        ("sentence", "J. R. R. Tolkien, e.g. in the U.S. ", [], ["J. R. R. Tolkien, e.g. in the U.S."]),
        ("sentence", "See the Dr.", [], ["See the Dr."]),
        ("sentence", 'He said "Go." Then he went', ['He said "Go."'], ["Then he went"]),
        ("sentence", "他说：「走吧！」然后", ["他说：「走吧！」"], ["然后"]),
        ("sentence", "What?! No... Yes. ", ["What?!", "No...", "Yes."], []),
        ("sentence", "See example.com/a?b!c for more", [], ["See example.com/a?b!c for more"]),
        ("sentence", "One line\nand the next", [], ["One line\nand the next"]),
        ("sentence", "… And then. ", ["… And then."], []),
        ("sentence", "?!", [], ["?!"]),
        ("sentence", "First one. Second one.", ["First one."], ["Second one."]),
    ],
)
def test_units_are_those_of_the_specification(
    granularity: Granularity, text: str, early: list[str], late: list[str]
) -> None:
    assert split(granularity, text) == (early, late)


def test_a_digit_decides_what_a_mark_before_it_means_however_late_it_comes() -> None:
    assert split("clause", "about 1", ",", "000 apples, ") == (["about 1,000 apples,"], [])
    assert split("clause", "about 1", ",", " or 2, ") == (["about 1,", "or 2,"], [])
    assert split("sentence", "It is 3", ".", "14. ") == (["It is 3.14."], [])


def test_marks_and_brackets_that_come_after_their_unit_are_left_out() -> None:
    assert split("sentence", "他说：「走吧", "！", "」", "』", "然后走了。") == (["他说：「走吧！", "然后走了。"], [])
    assert split("sentence", "等等…", "…") == (["等等…"], [])
    assert split("sentence", "走吧！", " 」好") == (["走吧！"], ["」好"])


def test_an_utterance_knows_nothing_of_the_one_before() -> None:
    splitter = Splitter("sentence")
    assert splitter.feed("走吧！") == ["走吧！"]
    assert splitter.flush() == []
    assert splitter.feed("」") == []
    assert splitter.flush() == ["」"]


def test_text_is_pending_until_a_unit_takes_it() -> None:
    splitter = Splitter("sentence")
    seen = [splitter.pending]
    for text in ("  ", "Hello", ". ", "More"):
        splitter.feed(text)
        seen.append(splitter.pending)
    assert splitter.chars == len("More")
    splitter.flush()
    assert [*seen, splitter.pending] == [False, False, True, False, True, False]


@pytest.mark.parametrize("granularity", ["sentence", "clause"])
def test_a_long_stretch_without_a_boundary_is_cut_at_its_last_whitespace(granularity: Granularity) -> None:
    words = "word " * 1000
    early, late = split(granularity, words)
    assert [len(unit) for unit in early] == [5 * 400 - 1] * 2
    assert " ".join(early + late) == words.strip()
    unbroken = "x" * (MAX_CHARS + 500)
    assert split(granularity, unbroken) == ([], [unbroken])
    assert split(granularity, unbroken, " and", " more") == ([unbroken], ["and more"])


PIECES = [*"aB1 \n\t.,:;!?…。，\"')」—", "Dr. ", "3.14", "word ", "नि", "1,0", "x" * 700, "y" * 1300]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=60).map("".join)
GRANULARITIES: st.SearchStrategy[Granularity] = st.sampled_from(["none", "sentence", "clause"])


@given(GRANULARITIES, st.text() | TEXTS)
@example("sentence", "a" * MAX_CHARS + "." * 3 + "b")
def test_nothing_is_lost_but_whitespace(granularity: Granularity, text: str) -> None:
    units = whole(granularity, text)
    assert "".join("".join(units).split()) == "".join(text.split())
    assert all(unit and unit == unit.strip() for unit in units)


@given(GRANULARITIES, TEXTS, st.data())
def test_units_do_not_depend_on_how_the_text_arrives(granularity: Granularity, text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=20)) if text else [])
    feeds = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert [unit.rstrip(LATE) for unit in whole(granularity, *feeds) if unit.rstrip(LATE)] == [
        unit.rstrip(LATE) for unit in whole(granularity, text) if unit.rstrip(LATE)
    ]


@given(GRANULARITIES, TEXTS)
def test_text_that_comes_by_the_character_is_spoken_no_later_than_at_once(granularity: Granularity, text: str) -> None:
    assume(text)
    assert len(split(granularity, *text)[0]) >= len(split(granularity, text)[0])


def test_a_large_message_of_tiny_units_is_no_trouble() -> None:
    assert len(whole("clause", "a," * 65_536)) == 65_536
    assert whole("sentence", "!-" * 65_536) == ["!-" * 65_536]
    splitter = Splitter("sentence")
    assert sum(len(splitter.feed("a.")) for _ in range(20_000)) == 0
