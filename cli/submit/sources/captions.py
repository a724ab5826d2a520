"""`.srt` and `.vtt`: one item per cue, with its times in the metadata (SubRip; WebVTT, W3C)."""

import html
import re
from collections.abc import Iterable, Iterator

from speechmill.cli.submit.sources.item import Item
from speechmill.infra.errors import BadInput

_TIME = r"(?:(\d{1,4}):)?(\d{1,2}):(\d{1,2})[.,](\d{1,3})"
_TIMING = re.compile(rf"\s*{_TIME}\s*-->\s*{_TIME}(?:\s.*)?", re.ASCII)
_TAG = re.compile(r"</?[a-zA-Z0-9][^<>]*>|\{\\[^{}]*\}")
_UNSPOKEN = re.compile(r"(?:WEBVTT|NOTE|STYLE|REGION)(?:\s|$)")
"""First words of blocks that are no cues."""
Block = list[tuple[int, str]]
"""Lines with their numbers."""


def read_captions(lines: Iterable[str], name: str) -> Iterator[Item]:
    """Tags are left out; a cue without text is no item. Raises BadInput for a block without times."""
    for block in _blocks(lines):
        first, opening = block[0]
        if _UNSPOKEN.match(opening):
            continue
        at = next((index for index, (_, line) in enumerate(block[:2]) if "-->" in line), None)
        timing = _TIMING.fullmatch(block[at][1]) if at is not None else None
        if at is None or timing is None:
            raise BadInput(f"{name}:{first}: a cue must have a line such as 00:00:01,000 --> 00:00:02,500")
        if text := _text([line for _, line in block[at + 1 :]]):
            times = {"start_ms": _ms(timing.groups()[:4]), "end_ms": _ms(timing.groups()[4:])}
            yield Item(f"{name}:{block[at][0]}", {"input": text}, {"metadata": times})


def _blocks(lines: Iterable[str]) -> Iterator[Block]:
    block: Block = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            block.append((number, line.strip()))
        elif block:
            yield block
            block = []
    if block:
        yield block


def _text(lines: list[str]) -> str:
    return " ".join(html.unescape(_TAG.sub("", " ".join(lines))).split())


def _ms(parts: tuple[str | None, ...]) -> str:
    hours, minutes, seconds, fraction = (part or "0" for part in parts)
    total_s = (int(hours) * 60 + int(minutes)) * 60 + int(seconds)
    return str(total_s * 1000 + int(fraction.ljust(3, "0")))
