"""The command that was given, as it may be shown to whoever looks at the screen."""

import shlex
import sys
from collections.abc import Iterator, Sequence

_KEY = "--key"


def coming_back(left_out: Sequence[str] = ()) -> str:
    """How to come back to what was left: the same command, but for these words, and never with a key in it."""
    given = sys.argv[1:]
    words = list(_without_key(given))
    hint = "" if len(words) == len(given) else ", with the key in SPEECHMILL_API_KEY"
    command = shlex.join(["speechmill", *(word for word in words if word not in left_out)])
    return f"To come back{hint}:\n  {command}"


def _without_key(given: Sequence[str]) -> Iterator[str]:
    words = iter(given)
    for word in words:
        if word == _KEY:
            next(words, None)
        elif not word.startswith(f"{_KEY}="):
            yield word
