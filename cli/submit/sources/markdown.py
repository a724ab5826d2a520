"""`.md`: one item per heading, paragraph, list item and table row; no markup, no code (CommonMark)."""

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from speechmill.cli.submit.sources.item import Item

if TYPE_CHECKING:
    from markdown_it.token import Token

_NOT_SPOKEN = re.compile(r"^\[[ xX]\]\s+|\[\^[^\]]*\]:?")
"""Boxes of task lists, and footnote marks."""
_BREAKS = ("softbreak", "hardbreak")
_TEXTS = ("text", "code_inline")


def read_markdown(lines: Iterable[str], name: str) -> Iterator[Item]:
    """Front matter, code blocks, HTML and images are left out. Never fails by itself."""
    from markdown_it import MarkdownIt

    skipped, body = _behind_front_matter(list(lines))
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse("".join(body))
    row: list[str] = []
    first = 0
    in_row = False
    for token in tokens:
        if token.map:
            first = skipped + token.map[0] + 1
        if token.type == "tr_open":
            in_row = True
        elif token.type == "tr_close":
            if row:
                yield Item(f"{name}:{first}", {"input": ", ".join(row)})
            row, in_row = [], False
        elif token.type == "inline" and (text := _spoken(token)):
            if in_row:
                row.append(text)
            else:
                yield Item(f"{name}:{first}", {"input": text})


def _behind_front_matter(lines: list[str]) -> tuple[int, list[str]]:
    """How many lines stand in front, and the rest."""
    if lines and lines[0].strip() == "---":
        for number, line in enumerate(lines[1:], 2):
            if line.strip() in ("---", "..."):
                return number, lines[number:]
    return 0, lines


def _spoken(inline: "Token") -> str:
    parts = []
    for token in inline.children or ():
        if token.type in _TEXTS:
            parts.append(token.content)
        elif token.type in _BREAKS:
            parts.append(" ")
    return " ".join(_NOT_SPOKEN.sub("", "".join(parts)).split())
