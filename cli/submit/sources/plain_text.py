"""`.txt`: one item per line, or per paragraph between blank lines."""

from collections.abc import Iterable, Iterator
from typing import Literal

from speechmill.cli.submit.sources.item import Item

Split = Literal["line", "paragraph"]


def read_text(lines: Iterable[str], name: str, split: Split) -> Iterator[Item]:
    """Blank lines are no items. Never fails by itself."""
    parts: list[str] = []
    first = 0
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if text:
            first = first if parts else number
            parts.append(text)
        if parts and (split == "line" or not text):
            yield Item(f"{name}:{first}", {"input": " ".join(parts)})
            parts.clear()
    if parts:
        yield Item(f"{name}:{first}", {"input": " ".join(parts)})
