"""Word times → subtitles, as SubRip or WebVTT."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from speechmill.infra.segments import is_abbreviated

CUE_CHARS = 84
"""Two lines of 42, as broadcasters have it."""
LINE_CHARS = 42
CUE_MS = 6000
GAP_MS = 700
"""A pause of this length begins a new cue."""
_ENDS = (".", "!", "?", "…", "。", "！", "？", "।")


@dataclass(frozen=True, slots=True)
class Cue:
    """Words that are shown together."""

    start_ms: int
    end_ms: int
    text: str


def cues(words: Sequence[Mapping[str, Any]]) -> list[Cue]:
    """Words (`word`, `start_ms`, `end_ms`) in groups that a person can read."""
    return [Cue(group[0]["start_ms"], group[-1]["end_ms"], _lines(group)) for group in _groups(words)]


def _groups(words: Sequence[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    group: list[Mapping[str, Any]] = []
    for word in words:
        if group and _parts(group, word):
            yield group
            group = []
        group.append(word)
    if group:
        yield group


def _parts(group: Sequence[Mapping[str, Any]], word: Mapping[str, Any]) -> bool:
    """Whether the word begins a cue of its own."""
    chars = sum(len(before["word"]) + 1 for before in group) + len(word["word"])
    return (
        chars > CUE_CHARS
        or word["end_ms"] - group[0]["start_ms"] > CUE_MS
        or word["start_ms"] - group[-1]["end_ms"] >= GAP_MS
        or _ends_sentence(group[-1]["word"])
    )


def _ends_sentence(word: str) -> bool:
    return word.endswith(_ENDS) and not (word.endswith(".") and is_abbreviated(word, len(word) - 1))


def _lines(group: Sequence[Mapping[str, Any]]) -> str:
    lines = [""]
    for word in group:
        longer = f"{lines[-1]} {word['word']}".strip()
        if len(longer) > LINE_CHARS and len(lines) == 1 and lines[0]:
            lines.append(word["word"])
        else:
            lines[-1] = longer
    return "\n".join(lines)


def srt(words: Sequence[Mapping[str, Any]]) -> str:
    """SubRip: numbered cues, commas before the milliseconds."""
    shown = enumerate(cues(words), 1)
    return "\n".join(f"{i}\n{_time(c.start_ms, ',')} --> {_time(c.end_ms, ',')}\n{c.text}\n" for i, c in shown)


def vtt(words: Sequence[Mapping[str, Any]]) -> str:
    """WebVTT, with what would be markup escaped."""
    parts = ["WEBVTT\n"]
    for cue in cues(words):
        text = cue.text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        parts.append(f"{_time(cue.start_ms, '.')} --> {_time(cue.end_ms, '.')}\n{text}\n")
    return "\n".join(parts)


def _time(ms: int, point: str) -> str:
    seconds, rest = divmod(ms, 1000)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{point}{rest:03}"
