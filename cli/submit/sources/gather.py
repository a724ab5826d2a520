"""Items of all sources that a command names, and what each source is called."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from speechmill.cli.submit.sources.captions import read_captions
from speechmill.cli.submit.sources.epub import read_epub
from speechmill.cli.submit.sources.fields import checked
from speechmill.cli.submit.sources.item import Item
from speechmill.cli.submit.sources.json_lines import read_json_lines
from speechmill.cli.submit.sources.lines import lines_of
from speechmill.cli.submit.sources.markdown import read_markdown
from speechmill.cli.submit.sources.plain_text import Split, read_text
from speechmill.cli.submit.sources.table import read_table
from speechmill.infra.errors import BadInput

STDIN = "-"
BOOK = "epub"


@dataclass(frozen=True, slots=True)
class Reading:
    """How to read sources."""

    split: Split = "line"
    ignore_unknown: bool = False
    input_format: str | None = None
    """The kind of standard input, and of files whose ending tells none."""
    except_below: Path | None = None
    """A folder that is no source: where results go."""


Reader = Callable[[Iterator[str], str, Reading], Iterator[Item]]
READERS: dict[str, Reader] = {
    "txt": lambda lines, name, how: read_text(lines, name, how.split),
    "md": lambda lines, name, how: read_markdown(lines, name),
    "csv": lambda lines, name, how: read_table(lines, name, how.ignore_unknown),
    "tsv": lambda lines, name, how: read_table(lines, name, how.ignore_unknown),
    "jsonl": lambda lines, name, how: read_json_lines(lines, name, how.ignore_unknown),
    "srt": lambda lines, name, how: read_captions(lines, name),
    "vtt": lambda lines, name, how: read_captions(lines, name),
}
KINDS = (*READERS, BOOK)


@dataclass(slots=True)
class Gathered:
    """`label` is short and no other source's; `number` counts the items of the source from 1."""

    label: str
    number: int
    item: Item


@dataclass(slots=True)
class _Labels:
    _taken: set[str] = field(default_factory=set)

    def of(self, parts: Sequence[str], kind: str) -> str:
        """By what the file is called, then also by its kind, then by a number."""
        stem = "-".join(parts)
        label, count = stem, 1
        while label.casefold() in self._taken:
            label = f"{stem}-{kind}" if count == 1 else f"{stem}-{kind}-{count}"
            count += 1
        self._taken.add(label.casefold())
        return label


def gather(sources: Sequence[str], how: Reading) -> Iterator[Gathered]:
    """In the order of the sources; files of a folder by name. Raises BadInput, which says where, and OSError."""
    labels = _Labels()
    for source in sources:
        if source == STDIN:
            yield from _numbered(labels.of(["stdin"], ""), _of_stdin(how))
            continue
        path = Path(source)
        for file in _files(path, how) if path.is_dir() else [path]:
            kind = _kind(file, how)
            inside = file.relative_to(path) if path.is_dir() else Path(file.name)
            label = labels.of(inside.with_suffix("").parts, kind)
            yield from _numbered(label, _of_file(file, kind, how))


def _numbered(label: str, items: Iterator[Item]) -> Iterator[Gathered]:
    for number, item in enumerate(items, 1):
        yield Gathered(label, number, checked(item))


def _files(folder: Path, how: Reading) -> Iterator[Path]:
    """Of known kinds, below the folder, without hidden ones and without what an earlier call has written."""
    spared = how.except_below.resolve() if how.except_below is not None else None
    found = []
    for parent, folders, names in os.walk(folder):
        folders[:] = [
            name for name in folders if not name.startswith(".") and (Path(parent) / name).resolve() != spared
        ]
        if Path(parent).resolve() != spared:
            found += [Path(parent) / name for name in names if not name.startswith(".")]
    known = sorted(file for file in found if _ending(file) in KINDS)
    if not known:
        raise BadInput(f"{folder}: there is no file in it that ends in one of .{', .'.join(KINDS)}")
    return iter(known)


def _ending(path: Path) -> str:
    return path.suffix.lower().removeprefix(".")


def _kind(path: Path, how: Reading) -> str:
    kind = _ending(path)
    if kind not in KINDS:
        kind = how.input_format or ""
    if kind not in KINDS:
        raise BadInput(f"{path}: its ending is none of .{', .'.join(KINDS)}; say --input-format")
    return kind


def _of_stdin(how: Reading) -> Iterator[Item]:
    kind = how.input_format or "txt"
    if kind == BOOK:
        raise BadInput("a book cannot be read from standard input; give the file")
    return _of_lines(sys.stdin.buffer, "stdin", kind, how)


def _of_file(path: Path, kind: str, how: Reading) -> Iterator[Item]:
    if kind == BOOK:
        yield from _of_book(path)
        return
    with contextlib.closing(path.open("rb")) as file:
        yield from _of_lines(file, str(path), kind, how)


def _of_lines(file: BinaryIO, name: str, kind: str, how: Reading) -> Iterator[Item]:
    return READERS[kind](lines_of(file, name), name, how)


def _of_book(path: Path) -> Iterator[Item]:
    for number, chapter in enumerate(read_epub(path).chapters, 1):
        for at, paragraph in enumerate(chapter.paragraphs, 1):
            where = f"{path}: chapter {number}, paragraph {at}"
            yield Item(where, {"input": paragraph.text}, {"metadata": {"chapter": str(number)}})
