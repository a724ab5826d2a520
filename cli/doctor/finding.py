"""What a check has found."""

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """`advice` says what to do; where all is well there is none."""

    level: Level
    check: str
    what: str
    advice: str = ""


def ok(check: str, what: str) -> Finding:
    return Finding("ok", check, what)


def warn(check: str, what: str, advice: str) -> Finding:
    """Something that only some users need."""
    return Finding("warn", check, what, advice)


def fail(check: str, what: str, advice: str) -> Finding:
    """The farm cannot work like this."""
    return Finding("fail", check, what, advice)
