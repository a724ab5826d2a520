"""How much of a text that is still being written belongs to the unit that speaks it, whatever may follow."""

import re
from typing import NamedTuple

from speechmill.infra.segments import AT_ONCE, CLOSERS, belongs_to_previous, is_abbreviated

_MARKS = ".!?" + AT_ONCE
_END = re.compile(rf"(?P<run>[{_MARKS}]+)[{_MARKS}{CLOSERS}]*")
_PAUSE = re.compile(r"\s+|[，；：、،؛]")


class Portion(NamedTuple):
    chars: int
    """From the unit's beginning, without whitespace behind them."""
    ends: bool
    """The unit is complete with them."""


def portion(text: str, most: int, whole: bool = False) -> Portion:
    """`text` begins with the unit; `whole`: nothing follows it.

    A unit has at most `most` characters. It ends with the first sentence that ends in its second half; else at its last
    pause, which is between words or behind a clause; else between two characters. Where it ends depends on the text
    alone, and not on how much of it there is already: what may be cut off again is no part of it yet.
    """
    least = most // 2
    if end := _sentence_end(text, least, most):
        return Portion(end, True)
    if len(text) > most:
        return Portion(_last_pause(text, least, most) or _last_character(text, least, most), True)
    if whole or len(text) <= least:
        return Portion(len(text.rstrip()), False)
    return Portion(_last_pause(text, least, most) or len(text[:least].rstrip()), False)


def _sentence_end(text: str, least: int, most: int) -> int:
    """0 for none; one at the text's end is none, for what follows decides."""
    for match in _END.finditer(text):
        if match.start() >= most:
            break
        if least <= match.end() <= most and match.end() < len(text) and _closes(text, match):
            return match.end()
    return 0


def _closes(text: str, match: re.Match[str]) -> bool:
    if not set(AT_ONCE).isdisjoint(match[0]):
        return True
    return text[match.end()].isspace() and not (match["run"] == "." and is_abbreviated(text, match.start()))


def _last_pause(text: str, least: int, most: int) -> int:
    """0 for none in the second half. Whitespace pauses before itself, a mark behind."""
    pauses = [match.start() if match[0].isspace() else match.end() for match in _PAUSE.finditer(text, 0, most + 1)]
    return max((pause for pause in pauses if least <= pause <= most), default=0)


def _last_character(text: str, least: int, most: int) -> int:
    return next((cut for cut in range(most, least, -1) if not belongs_to_previous(text, cut)), most)
