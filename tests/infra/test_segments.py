import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from speechmill.infra.segments import clean, pack, split


def squeezed(text: str) -> str:
    return "".join(text.split())


@pytest.mark.parametrize(
    ("text", "segments"),
    [
        ("", []),
        (" \n ", []),
        ("Hello world.", ["Hello world."]),
        ("Hello world. More", ["Hello world.", "More"]),
        ("It costs 3.14 dollars. ", ["It costs 3.14 dollars."]),
        ("At 10:30 we had 1,000.50 left! Really?", ["At 10:30 we had 1,000.50 left!", "Really?"]),
        ("Dr. Smith came. ", ["Dr. Smith came."]),
        (
            "J. R. R. Tolkien wrote it, e.g. in the U.S. and later.",
            ["J. R. R. Tolkien wrote it, e.g. in the U.S. and later."],
        ),
        ("At 5 p.m. he left. Etc. etc. Done.", ["At 5 p.m. he left.", "Etc. etc. Done."]),
        ("A microfig. Then 2B. Go on.", ["A microfig.", "Then 2B.", "Go on."]),
        ("你好。世界。", ["你好。", "世界。"]),
        ("他说：「走吧！」然后走了。", ["他说：「走吧！」", "然后走了。"]),
        ("नमस्ते। कैसे हो?", ["नमस्ते।", "कैसे हो?"]),
        ("مرحبا؟كيف الحال", ["مرحبا؟", "كيف الحال"]),
        ('He said "Go." Then he went.', ['He said "Go."', "Then he went."]),
        ("(Is it?) Yes.", ["(Is it?)", "Yes."]),
        ("What?! No... Yes.", ["What?!", "No...", "Yes."]),
        ("Wait…what", ["Wait…", "what"]),
        ("See example.com/a.b?c=d!e for more.", ["See example.com/a.b?c=d!e for more."]),
        ("A title\nA line\r\n\r\nA paragraph", ["A title", "A line", "A paragraph"]),
        ("Hello. — . Bye.", ["Hello. — .", "Bye."]),
        ("*** Hello.", ["*** Hello."]),
        ("…\nHello.\n***\n👍", ["…\nHello.\n***\n👍"]),
        ("?!", ["?!"]),
    ],
)
def test_sentences_are_segments(text: str, segments: list[str]) -> None:
    assert split(text, 200) == segments


@pytest.mark.parametrize(
    ("text", "segments"),
    [
        ("one two, three four five", ["one two,", "three four", "five"]),
        ("one two three four", ["one two", "three four"]),
        ("costing 1,000,000", ["costing", "1,000,000"]),
        ("一二三，四五六、七八九十一二", ["一二三，四五六、", "七八九十一二"]),
        ("abcdefghijklmnop", ["abcdefghijkl", "mnop"]),
        ("abcdefghijk\u0065\u0301f", ["abcdefghijk", "\u0065\u0301f"]),
        ("abcdefghij👩\u200d🚀f", ["abcdefghij", "👩\u200d🚀f"]),
        ("e" + "\u0301" * 30, ["e" + "\u0301" * 11, "\u0301" * 12, "\u0301" * 7]),
    ],
)
def test_a_long_sentence_is_cut_at_clauses_then_spaces_then_characters(text: str, segments: list[str]) -> None:
    assert split(text, 12) == segments


PIECES = [*"aB1 \n\t.,:!?…。，\"')」—", "\u0301", "\u200d", "👍", "Dr. ", "3.14", "word ", "नि"]
TEXTS = st.text() | st.lists(st.sampled_from(PIECES), max_size=80).map("".join)


@given(TEXTS, st.integers(1, 40))
@example("。\u0301a", 40)
@example(" \u0301" * 5, 3)
def test_nothing_is_lost_and_nothing_is_too_long(text: str, max_chars: int) -> None:
    segments = split(text, max_chars)
    assert squeezed("".join(segments)) == squeezed(text)
    assert all(0 < len(segment) <= max_chars for segment in segments)
    assert all(segment == segment.strip() for segment in segments)


@given(st.lists(st.sampled_from(["a", "e\u0301", "ड़", ". ", ", ", " ", "。"])).map("".join), st.integers(2, 20))
def test_no_segment_starts_inside_a_character(text: str, max_chars: int) -> None:
    assert not any(unicodedata.category(segment[0]).startswith("M") for segment in split(text, max_chars))


@given(TEXTS)
def test_a_piece_without_words_stands_alone_only_when_there_is_nothing_else(text: str) -> None:
    segments = split(text, 10_000)
    assert len(segments) <= 1 or all(any(map(str.isalnum, segment)) for segment in segments)


def test_a_long_text_is_no_trouble() -> None:
    assert len(split("No end, and no. " * 50_000, 300)) > 1000
    assert len(split("!" * 200_000, 300)) == 667


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [("a\0b\x1bc\x7f", "abc\x7f"), ("a\tb\r\nc", "a\tb\r\nc"), ("a\ud800b\udfff", "ab"), ("🎈", "🎈")],
)
def test_unspeakable_characters_are_removed(text: str, cleaned: str) -> None:
    assert clean(text) == cleaned


TAG = r"<\|speaker:\d+\|>"


@pytest.mark.parametrize(
    ("text", "segments"),
    [
        ("", []),
        ("One. Two. Three.", ["One. Two. Three."]),
        ("[whisper] It is late. [laugh] Bye!", ["[whisper] It is late. [laugh] Bye!"]),
        ("一二三。四五六。", ["一二三。四五六。"]),
        (
            "A sentence of thirty characters. Another one of as many letters.",
            ["A sentence of thirty characters.", "Another one of as many letters."],
        ),
        (
            "Well [clearing throat. slowly] then. And so on, and so on.",
            ["Well [clearing throat. slowly] then.", "And so on, and so on."],
        ),
        (
            "Before. <|speaker:0|> Hi there. <|speaker:1|>Yes.",
            ["Before.\n<|speaker:0|>Hi there.", "<|speaker:1|>Yes."],
        ),
        (
            "<|speaker:3|>The first sentence is here. The second is as well.",
            ["<|speaker:3|>The first sentence is here.", "<|speaker:3|>The second is as well."],
        ),
    ],
)
def test_sentences_share_a_segment_as_long_as_it_has_room(text: str, segments: list[str]) -> None:
    assert pack(text, 40, TAG) == segments


def test_a_segment_has_no_more_turns_than_it_may() -> None:
    text = "".join(f"<|speaker:{number}|>Hi." for number in range(7))
    assert [segment.count("speaker") for segment in pack(text, 1000, TAG)] == [5, 2]


@given(st.text(), st.integers(8, 60))
def test_packed_segments_fit_and_hold_every_character(text: str, most: int) -> None:
    found = pack(text, most)
    assert all(0 < len(segment) <= most for segment in found)
    assert squeezed("".join(found)) == squeezed(text)
