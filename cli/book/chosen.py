"""`--chapters 1,3-5`: which chapters are meant."""

import re

from speechmill.infra.errors import BadInput

_RANGE = re.compile(r"(\d{1,6})(?:(-)(\d{1,6})?)?")


def chosen(asked: str, count: int) -> list[int]:
    """Numbers from 1 to `count`, rising, each once; `3-` goes to the last. Raises BadInput."""
    numbers: set[int] = set()
    for part in asked.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise BadInput(f"--chapters {asked}: it must be such as 1,3-5")
        first = int(match[1])
        last = int(match[3]) if match[3] else count if match[2] else first
        if not 1 <= first <= last <= count:
            raise BadInput(f"--chapters {part.strip()}: the book has the chapters 1 to {count}; see --list")
        numbers.update(range(first, last + 1))
    return sorted(numbers)
