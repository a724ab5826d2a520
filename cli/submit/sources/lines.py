"""Text files line by line: UTF-8, and nothing else is guessed."""

import codecs
from collections.abc import Iterator
from typing import BinaryIO

from speechmill.infra.errors import BadInput

MOST_LINE_BYTES = 32 << 20


def lines_of(file: BinaryIO, name: str) -> Iterator[str]:
    """Lines with their ends as they are. Raises BadInput with file and line where it is not UTF-8."""
    number = 0
    while line := file.readline(MOST_LINE_BYTES + 1):
        number += 1
        if number == 1:
            line = _without_mark(line, name)
        if len(line) > MOST_LINE_BYTES:
            raise BadInput(f"{name}:{number}: the line is longer than {MOST_LINE_BYTES >> 20} MiB")
        try:
            yield line.decode()
        except UnicodeDecodeError as error:
            raise BadInput(f"{name}:{number}: it is not UTF-8 ({error.reason} at byte {error.start + 1})") from None


def _without_mark(line: bytes, name: str) -> bytes:
    if line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise BadInput(f"{name}:1: it is UTF-16; save it as UTF-8")
    return line.removeprefix(codecs.BOM_UTF8)
