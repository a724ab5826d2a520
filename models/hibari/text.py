"""Text → utterances of phoneme ids, through the wheel's own grapheme-to-phoneme rules, and which word is where."""

import json
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from importlib import resources

from hibari import Hibari
from hibari.g2p import G2P
from hibari.g2p.normalize import normalize

MAX_PHONEMES = 400
_LONGEST_NUMBER = 15
"""The wheel names numbers up to trillions; longer runs of digits are read digit by digit."""
_POWERS = "²³"
_CLAUSE_MARKS = ";:,.!?…—"
_PUNCTUATION = _CLAUSE_MARKS + '"()“” '
_LONG_NUMBER = re.compile(rf"\d[\d,]{{{_LONGEST_NUMBER},}}")


@dataclass(frozen=True, slots=True)
class Word:
    """A word as the user wrote it, and its phonemes: positions `start` to `end`."""

    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Utterance:
    """What the model speaks in one go. Without ids it is a short pause."""

    ids: tuple[int, ...] = ()
    """Zeros at both ends, at most MAX_PHONEMES between them."""
    words: tuple[Word, ...] = ()
    """In order; positions are indices of `ids`."""


class Reader:
    def __init__(self) -> None:
        self._g2p = G2P()
        vocabulary = resources.files("hibari").joinpath("assets", "vocab.json").read_text(encoding="utf-8")
        self._ids: dict[str, int] = json.loads(vocabulary)

    def read(self, text: str) -> list[Utterance]:
        """Utterances in order, one per sentence or less. Empty if the text has letters but nothing to pronounce."""
        text = unicodedata.normalize("NFC", "".join(map(_plain, text)))
        sentences = Hibari.split_sentences(text)
        found = [utterance for sentence in sentences for utterance in self._utterances(sentence)]
        silent = not any(utterance.ids for utterance in found)
        return [] if silent and any(char.isalnum() for char in text) else found or [Utterance()]

    def _utterances(self, sentence: str) -> Iterator[Utterance]:
        phonemes, spoken = self._pronounce(sentence)
        words = _align(sentence.split(), spoken)
        for start, end in _cut(phonemes):
            part = phonemes[start:end]
            if part.strip(_PUNCTUATION):
                ids = (0, *(self._ids[symbol] for symbol in part), 0)
                inside = (word for word in words if start <= word.start < end)
                shift = 1 - start
                yield Utterance(
                    ids, tuple(Word(word.text, word.start + shift, min(word.end, end) + shift) for word in inside)
                )
            else:
                yield Utterance()

    def _pronounce(self, sentence: str) -> tuple[str, list[Word]]:
        """Phonemes, and the words of the normalised sentence with their places in them."""
        speakable = _LONG_NUMBER.sub(lambda run: " ".join(run[0].replace(",", "")), sentence)
        phonemes, text, start = "", "", 0
        words: list[Word] = []
        for token in self._g2p.phonemize_tokens(self._g2p.tokenize(normalize(speakable))):
            text += token.text
            phonemes += "".join(symbol for symbol in token.phonemes or "" if symbol in self._ids)
            if token.whitespace:
                words.append(_word(text, phonemes, start))
                phonemes += " " if phonemes[-1:].strip() else ""
                text, start = "", len(phonemes)
        return phonemes.rstrip(), [*words, _word(text, phonemes, start)]


def _plain(char: str) -> str:
    """Controls and lone surrogates become spaces; digits that are no number's digits ("①") their plain selves."""
    if unicodedata.category(char) in {"Cc", "Cs"} and char != "\n":
        return " "
    return str(unicodedata.digit(char)) if char.isdigit() and not (char.isdecimal() or char in _POWERS) else char


def _word(text: str, phonemes: str, start: int) -> Word:
    """The word whose phonemes begin at `start`, without the pauses that its punctuation makes."""
    part = phonemes[start:]
    return Word(text, start + len(part) - len(part.lstrip(_PUNCTUATION)), start + len(part.rstrip(_PUNCTUATION)))


def _align(written: list[str], spoken: list[Word]) -> list[Word]:
    """Give the written words the places of the spoken ones ("$5" is "five dollars"); silent words are left out.

    Where the two differ, both sides are dealt out evenly in order.
    """
    words: list[Word] = []
    matcher = SequenceMatcher(None, written, [word.text for word in spoken], autojunk=False)
    for _, i, i_end, j, j_end in matcher.get_opcodes():
        groups = min(i_end - i, j_end - j)
        for group in range(groups):
            texts = written[_share(i, i_end, group, groups) : _share(i, i_end, group + 1, groups)]
            places = spoken[_share(j, j_end, group, groups) : _share(j, j_end, group + 1, groups)]
            if places[0].start < places[-1].end:
                words.append(Word(" ".join(texts), places[0].start, places[-1].end))
    return words


def _share(start: int, end: int, group: int, groups: int) -> int:
    return start + group * (end - start) // groups


def _cut(phonemes: str) -> Iterator[tuple[int, int]]:
    """Ranges of at most MAX_PHONEMES: up to the last clause mark that fits, else the last space, else the limit."""
    start = 0
    while len(phonemes) - start > MAX_PHONEMES:
        window = phonemes[start : start + MAX_PHONEMES + 1]
        clause = max(window.rfind(f"{mark} ") + 1 for mark in _CLAUSE_MARKS)
        length = clause or max(window.rfind(" "), 0) or MAX_PHONEMES
        yield start, start + length
        start += length
        start += len(phonemes[start:]) - len(phonemes[start:].lstrip())
    yield start, len(phonemes)
