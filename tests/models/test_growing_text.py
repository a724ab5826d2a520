"""Tokens of a text that arrives bit by bit."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

from speechmill.models.common.growing_text import GrowingText, Span

_SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_BEFORE = r"[^\r\n\p{L}\p{N}]?"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
PATTERNS = {
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "qwen2": rf"{_SHORT}|{_BEFORE}\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}",
    "llama3": rf"{_SHORT}|{_BEFORE}\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}",
    "tekken": rf"{_BEFORE}{_UPPER}*{_LOWER}+|{_BEFORE}{_UPPER}+{_LOWER}*"
    rf"|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}",
}
CORPUS = [
    "It's the birch canoe, they'll say. \n\n We're  here; it's 12345 of 3.14!!\n",
    "今天天气真好，很好。",
    "é e\u0301 한국",
]
TEXTS = st.text("aeIT'slr 1 2\n\r\t.,!/今好，。é\u0301\u0323\u0334ᄒ\u1161\u11ab\U0001f3fd", max_size=40)


def tokenizer(pattern: str) -> Tokenizer:
    """A small byte-level BPE with merges of its own."""
    made = Tokenizer(models.BPE())
    made.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        CORPUS * 5, trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    )
    return made


MADE = {name: tokenizer(pattern) for name, pattern in PATTERNS.items()}


def growing(made: Tokenizer) -> GrowingText:
    def pre_tokens(text: str) -> Sequence[Span]:
        return [span for _, span in made.pre_tokenizer.pre_tokenize_str(text)]

    return GrowingText(made.normalizer.normalize_str, pre_tokens)


def ids(made: Tokenizer, text: str) -> list[int]:
    found: list[int] = made.encode(text).ids
    return found


def ids_of_pieces(made: Tokenizer, pieces: Sequence[str]) -> list[int]:
    text = growing(made)
    given_out = [text.feed(piece) for piece in pieces]
    return [id for piece in [*given_out, text.feed("", final=True)] for id in ids(made, piece)]


@pytest.mark.parametrize("name", PATTERNS)
@given(text=TEXTS, cuts=st.lists(st.integers(0, 40), max_size=6))
@example(text="it's", cuts=[3])
@example(text="\n\n1", cuts=[2])
@example(text="a  1", cuts=[3])
@example(text="a \n \n", cuts=[4])
@example(text="e\u0334\u0301", cuts=[2])
def test_any_cut_of_a_text_gives_its_tokens(name: str, text: str, cuts: list[int]) -> None:
    edges = sorted({0, len(text), *(at for at in cuts if at < len(text))})
    whole = ids(MADE[name], text)
    assert ids_of_pieces(MADE[name], [text[a:b] for a, b in pairwise(edges)]) == whole
    assert ids_of_pieces(MADE[name], list(text)) == whole


@pytest.mark.parametrize("name", PATTERNS)
def test_a_word_is_given_out_when_the_next_one_begins(name: str) -> None:
    text = growing(MADE[name])
    assert [text.feed(piece) for piece in ("Hel", "lo", " ", "there", ",")] == ["", "", "Hello", "", " there"]
    assert text.feed(" you", final=True) == ", you"


def test_chinese_is_given_out_clause_by_clause() -> None:
    text = growing(MADE["qwen2"])
    assert [text.feed(mark) for mark in "今天天气，很好"] == ["", "", "", "", "今天天气", "", ""]
