"""The book that a file holds, whatever its kind."""

from dataclasses import replace
from pathlib import Path

from speechmill.cli.book.markdown import read_markdown_book
from speechmill.cli.book.plain_text import read_text_book
from speechmill.cli.submit.sources.epub import Book, read_epub
from speechmill.cli.submit.sources.lines import lines_of
from speechmill.infra.errors import BadInput

_TEXTS = {".txt": read_text_book, ".md": read_markdown_book, ".markdown": read_markdown_book}


def read_book(path: Path) -> Book:
    """Its title is the file's name where it tells none. Raises BadInput, OSError."""
    ending = path.suffix.lower()
    if ending == ".epub":
        book = read_epub(path)
    elif read := _TEXTS.get(ending):
        with path.open("rb") as file:
            book = read("".join(lines_of(file, str(path))))
    else:
        raise BadInput(f"{path}: a book ends in .epub, {', '.join(_TEXTS)}")
    if not book.chapters:
        raise BadInput(f"{path}: there is no text in it")
    return book if book.title else replace(book, title=path.stem)
