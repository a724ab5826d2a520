"""Long text → pieces that a model can speak in one go, cut where a reader would pause."""

import re
import unicodedata
from collections.abc import Iterator

AT_ONCE = "。｡！？…।॥؟۔"
"""These end a sentence wherever they stand; `. ! ?` only before whitespace or the end."""
CLOSERS = "\"'”’»)\\]}」』）】》"
"""Quotes and brackets that stay with the sentence they close; as they stand in a regular expression's set."""
_SENTENCE_END = re.compile(rf"(?P<run>[.!?{AT_ONCE}]+)[{CLOSERS}]*|[\n\r\x0b\x0c\x85\u2028\u2029]+")
_CLAUSE_END = re.compile(rf"(?:[，；：、،؛—]|[,;:](?=[{CLOSERS}]*\s))[{CLOSERS}]*")
_ABBREVIATION = re.compile(
    r"(?<![^\W_])(?:mr|mrs|ms|dr|prof|sr|jr|st|vs|etc|no|fig|dept|approx|e\.g|i\.e|a\.m|p\.m|u\.s|u\.k)\Z",
    re.IGNORECASE,
)
_LONGEST_ABBREVIATION = 6
_UNSPEAKABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff]")
_ZERO_WIDTH_JOINER = "\u200d"
MOST_TURNS = 5

Span = tuple[int, int]


def clean(text: str) -> str:
    """Without control characters (but tab, newline and carriage return) and without lone surrogates."""
    return _UNSPEAKABLE.sub("", text)


def split(text: str, max_chars: int) -> list[str]:
    """One sentence per segment, none longer than `max_chars`, none empty, nothing lost but whitespace around them.

    A longer sentence is cut at a clause mark, else at whitespace, else between two characters. A piece without any
    letter or digit joins a neighbour that has room for it.
    """
    pieces = [piece for sentence in _sentences(text) for piece in _cut(text, sentence, max_chars)]
    return [text[start:end] for start, end in _attach(text, pieces, max_chars)]


def pack(text: str, max_chars: int, turn_tag: str = "", most_turns: int = MOST_TURNS) -> list[str]:
    """As many sentences per segment as fit into `max_chars`; none is cut inside of square brackets that fit.

    `turn_tag` is a regular expression for what changes the speaker: a segment holds at most `most_turns` turns, each on
    a line of its own, and one that begins in the middle of a turn repeats its tag.
    """
    segments: list[str] = []
    current, turns = "", 0
    for tag, said in _turns(text, turn_tag):
        behind = -1
        for start, end in _pieces(said, max_chars - len(tag)):
            between = said[behind:start] if behind >= 0 else "\n" + tag
            is_full = len(current) + len(between) + end - start > max_chars or (behind < 0 and turns == most_turns)
            if current and is_full:
                segments.append(current)
                current, turns = "", 0
            turns += behind < 0 or not current
            current += (between if current else tag) + said[start:end]
            behind = end
    return [*segments, current] if current else segments


def _turns(text: str, turn_tag: str) -> Iterator[tuple[str, str]]:
    """Each tag with what is said behind it; first what stands before all tags, with "" for its tag."""
    tag, start = "", 0
    for match in re.finditer(turn_tag, text) if turn_tag else ():
        yield tag, text[start : match.start()]
        tag, start = match[0], match.end()
    yield tag, text[start:]


def _pieces(text: str, max_chars: int) -> Iterator[Span]:
    """Sentences, and parts of long ones; those that would part a pair of square brackets are one."""
    held: Span | None = None
    for start, end in (piece for sentence in _sentences(text) for piece in _cut(text, sentence, max_chars)):
        if held is not None and _is_open(text, held) and end - held[0] <= max_chars:
            held = (held[0], end)
            continue
        if held is not None:
            yield held
        held = (start, end)
    if held is not None:
        yield held


def _is_open(text: str, span: Span) -> bool:
    return text.rfind("[", *span) > text.rfind("]", *span)


def _sentences(text: str) -> Iterator[Span]:
    start = 0
    for match in _SENTENCE_END.finditer(text):
        if _ends_sentence(text, match):
            yield from _strip(text, start, match.end())
            start = match.end()
    yield from _strip(text, start, len(text))


def _ends_sentence(text: str, match: re.Match[str]) -> bool:
    run, end = match["run"], match.end()
    if run is None:
        return True
    if belongs_to_previous(text, end):
        return False
    if any(mark in AT_ONCE for mark in run):
        return True
    return (end == len(text) or text[end].isspace()) and not (run == "." and is_abbreviated(text, match.start()))


def is_abbreviated(text: str, dot: int) -> bool:
    """Whether the full stop at `dot` belongs to an abbreviation or a single capital letter."""
    if _ABBREVIATION.search(text[max(0, dot - _LONGEST_ABBREVIATION - 1) : dot]):
        return True
    letter, before = text[dot - 1 : dot], text[max(0, dot - 2) : dot - 1]
    return letter.isupper() and not before.isalnum()


def _cut(text: str, sentence: Span, max_chars: int) -> Iterator[Span]:
    start, end = sentence
    while end - start > max_chars:
        cut = _best_cut(text, start, start + max_chars)
        yield from _strip(text, start, cut)
        start = next(_strip(text, cut, end))[0]
    yield start, end


def _best_cut(text: str, start: int, limit: int) -> int:
    """The last good place after `start`, at or before `limit`."""
    clauses = [match.end() for match in _CLAUSE_END.finditer(text, start, limit + 1) if match.end() <= limit]
    for cut in reversed(clauses):
        if not belongs_to_previous(text, cut):
            return cut
    for cut in range(limit, start, -1):
        if text[cut].isspace() and not belongs_to_previous(text, cut + 1):
            return cut
    for cut in range(limit, start, -1):
        if not belongs_to_previous(text, cut):
            return cut
    return limit


def belongs_to_previous(text: str, index: int) -> bool:
    """Whether a cut before `index` would part one visible character."""
    if not 0 < index < len(text):
        return False
    character = text[index]
    return (
        unicodedata.category(character).startswith("M")
        or _ZERO_WIDTH_JOINER in (character, text[index - 1])
        or "\U0001f3fb" <= character <= "\U0001f3ff"  # Skin tones.
        or "\u1160" <= character <= "\u11ff"  # Vowels and finals of decomposed Hangul.
    )


def _attach(text: str, pieces: list[Span], max_chars: int) -> list[Span]:
    joined: list[Span] = []
    for start, end in pieces:
        if joined and end - joined[-1][0] <= max_chars:
            previous = joined[-1]
            if not (_is_spoken(text, previous) and _is_spoken(text, (start, end))):
                joined[-1] = (previous[0], end)
                continue
        joined.append((start, end))
    return joined


def _is_spoken(text: str, span: Span) -> bool:
    return any(map(str.isalnum, text[slice(*span)]))


def _strip(text: str, start: int, end: int) -> Iterator[Span]:
    """The span without whitespace around it, if anything remains."""
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    if start < end:
        yield start, end
