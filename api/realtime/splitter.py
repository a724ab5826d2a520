"""Text that arrives bit by bit → units to speak, each as soon as what may come cannot change it (speech_api §2.4)."""

import re
from typing import Literal

from speechmill.infra.segments import AT_ONCE, CLOSERS, is_abbreviated

Granularity = Literal["none", "sentence", "clause"]

MAX_CHARS = 2000
"""A longer stretch without a boundary is cut at whitespace."""
_CLAUSE_MARKS = ",;，；،"
_SPACES = re.compile(r"\s*")
_SPACE = re.compile(r"\s")
_LAST_SPACE = re.compile(r".*\s", re.DOTALL)
_SPOKEN = re.compile(r"[^\W_]")


class Splitter:
    """One utterance after the other: `feed` and `flush` answer the units that they complete, stripped, never empty.

    How the text is cut into feeds makes no difference, but for one thing: a unit that closes at once is gone when
    further marks, quotes or brackets arrive that belong to it. They have no sound and are left out.
    What holds no letter and no digit is no unit of its own, unless it is all there is at the flush.
    """

    def __init__(self, granularity: Granularity) -> None:
        at_once = AT_ONCE + (_CLAUSE_MARKS if granularity == "clause" else "")
        marks = ".!?" + at_once
        self._splits = granularity != "none"
        self._at_once = frozenset(at_once)
        self._end = re.compile(rf"(?P<run>[{marks}]+)[{marks}{CLOSERS}]*")
        self._late = re.compile(rf"[{marks}{CLOSERS}]*")
        self._forget()

    def _forget(self) -> None:
        self._text = ""
        self._decided = 0
        """There is no boundary before."""
        self._closed_at_once = False

    @property
    def chars(self) -> int:
        """Of text that no unit has taken yet."""
        return len(self._text)

    @property
    def pending(self) -> bool:
        """Whether there is such text, other than whitespace."""
        return bool(self._text.strip())

    def feed(self, text: str) -> list[str]:
        """The units that are complete now."""
        if self._closed_at_once and text:
            text = self._late.sub("", text, count=1)
            self._closed_at_once = not text
        self._text += text
        return self._complete() if self._splits else []

    def flush(self) -> list[str]:
        """What remains, as the last unit. The next feed begins another utterance."""
        rest = self._text.strip()
        self._forget()
        return [rest] if rest else []

    def _complete(self) -> list[str]:
        units, start = [], self._unit_start(0)
        while cut := self._next_cut(start):
            units.append(self._text[start:cut].rstrip())
            self._closed_at_once = cut == len(self._text) and not self._text[cut - 1].isspace()
            start = self._decided = self._unit_start(cut)
        self._text, self._decided = self._text[start:], self._decided - start
        return units

    def _unit_start(self, at: int) -> int:
        match = _SPACES.match(self._text, at)
        return match.end() if match else at

    def _next_cut(self, start: int) -> int:
        """Where the unit that begins at `start` ends; 0 where that cannot be said yet."""
        spoken = _SPOKEN.search(self._text, start)
        seen, self._decided = self._decided, len(self._text)
        for match in self._end.finditer(self._text, max(seen, spoken.end()) if spoken else len(self._text)):
            closes = self._closes(match)
            if closes is not False:
                self._decided = match.start()
                return self._long_cut(start, seen) or (match.end() if closes else 0)
        return self._long_cut(start, seen)

    def _closes(self, match: re.Match[str]) -> bool | None:
        """Whether a unit ends with these marks; None where the next character decides."""
        text, run, after_run = self._text, match["run"], match.end("run")
        if run == "," and text[match.start() - 1].isdecimal():
            if after_run == len(text):
                return None
            if text[after_run].isdecimal():
                return False
        if not self._at_once.isdisjoint(match[0]):
            return True
        if match.end() == len(text):
            return None
        return text[match.end()].isspace() and not (run == "." and is_abbreviated(text, match.start()))

    def _long_cut(self, start: int, seen: int) -> int:
        """Behind the last whitespace within `MAX_CHARS`, else the first, where there is no boundary for longer.

        Were there one between the two before `seen`, it would have been taken.
        """
        limit = start + MAX_CHARS
        if self._decided <= limit:
            return 0
        last = _LAST_SPACE.match(self._text, start, limit + 1)
        found = last or _SPACE.search(self._text, max(limit, seen), self._decided)
        return found.end() if found else 0
