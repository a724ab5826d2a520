"""A book in plain text: paragraphs between blank lines, chapters by what looks like a heading."""

import re
from collections.abc import Iterable, Iterator

from speechmill.cli.submit.sources.epub import Book, Chapter
from speechmill.cli.submit.sources.plain_text import read_text
from speechmill.cli.submit.sources.xhtml import Paragraph

HEADING_CHARS = 80
_NUMBER = r"(?:\d{1,3}|[IVXLC]{1,8}|(?:the\s+)?[a-z]+(?:[-\s](?:one|two|three|four|five|six|seven|eight|nine))?)"
_HEADING = re.compile(
    rf"(?:(?:chapter|book|part|act|canto|letter|stave|volume)\s+{_NUMBER}(?:\s*[.:—–-].*|)"
    r"|(?:prologue|epilogue|preface|foreword|introduction|afterword|conclusion|appendix)\b[^.]*)[.:]?",
    re.IGNORECASE,
)


def read_text_book(text: str) -> Book:
    """One chapter where nothing looks like a heading. Never fails."""
    items = read_text(text.splitlines(), "", "paragraph")
    paragraphs = (_paragraph(str(item.request["input"])) for item in items)
    return Book("", (), "", "", None, tuple(chapters_of(paragraphs)))


def chapters_of(paragraphs: Iterable[Paragraph]) -> Iterator[Chapter]:
    """Each begins with a heading, but for what stands in front of the first one; headings in a row stay together."""
    chapter: list[Paragraph] = []
    for paragraph in paragraphs:
        if paragraph.is_heading and chapter and not chapter[-1].is_heading:
            yield _chapter(chapter)
            chapter = []
        chapter.append(paragraph)
    if chapter:
        yield _chapter(chapter)


def _chapter(paragraphs: list[Paragraph]) -> Chapter:
    first = paragraphs[0]
    return Chapter(first.text if first.is_heading else "", tuple(paragraphs))


def _paragraph(text: str) -> Paragraph:
    return Paragraph(text, len(text) <= HEADING_CHARS and _HEADING.fullmatch(text) is not None)
