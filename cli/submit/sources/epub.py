"""EPUB 2 and 3: a book's metadata and its chapters in reading order."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from speechmill.cli.submit.sources.archive import Archive
from speechmill.cli.submit.sources.epub_contents import Entry, read_contents
from speechmill.cli.submit.sources.epub_package import Package, read_package, refuse_encrypted
from speechmill.cli.submit.sources.xhtml import Document, Paragraph, decode_markup, read_document
from speechmill.infra.errors import BadInput

_TEXTS = ("application/xhtml+xml", "text/html", "application/xml", "text/xml", "application/x-dtbook+xml")


@dataclass(frozen=True, slots=True)
class Cover:
    """An image file as it stands in the book, and its media type, such as `image/jpeg`."""

    content: bytes
    media_type: str


@dataclass(frozen=True, slots=True)
class Chapter:
    """Paragraphs from one entry of the table of contents to the next; never none.

    `title` is the table's, else the first heading, else empty. Headings are among the paragraphs.
    """

    title: str
    paragraphs: tuple[Paragraph, ...]


@dataclass(frozen=True, slots=True)
class Book:
    """What is not told is empty, or None."""

    title: str
    authors: tuple[str, ...]
    language: str
    """A BCP 47 tag, such as `en-GB`."""
    identifier: str
    cover: Cover | None
    chapters: tuple[Chapter, ...]


def read_epub(path: Path) -> Book:
    """Raises BadInput for what is broken, encrypted or too large, or holds no text; OSError for no such file."""
    with Archive(path) as archive:
        refuse_encrypted(archive)
        package = read_package(archive)
        chapters = tuple(_chapters(archive, package))
        if not chapters:
            raise BadInput(f"{path}: there is no text in it")
        return Book(
            package.title, package.authors, package.language, package.identifier, _cover(archive, package), chapters
        )


def _cover(archive: Archive, package: Package) -> Cover | None:
    """A book whose cover is missing can be heard all the same."""
    if package.cover is None or package.cover.path not in archive.names:
        return None
    return Cover(archive.read(package.cover.path), package.cover.media_type)


@dataclass(frozen=True, slots=True)
class _Part:
    """Of one document, behind one entry of the table, or in front of the first (`title` is None)."""

    title: str | None
    paragraphs: list[Paragraph]


def _chapters(archive: Archive, package: Package) -> Iterator[Chapter]:
    """A part that the table does not name and that has no heading continues the chapter before it."""
    title, paragraphs = "", list[Paragraph]()
    for part in _parts(archive, package):
        heading = next((one.text for one in part.paragraphs if one.is_heading), "")
        if paragraphs and (part.title is not None or heading):
            yield Chapter(title, tuple(paragraphs))
            title, paragraphs = "", []
        if not paragraphs:
            title = part.title or heading
        paragraphs += part.paragraphs
    if paragraphs:
        yield Chapter(title, tuple(paragraphs))


def _parts(archive: Archive, package: Package) -> Iterator[_Part]:
    entries: dict[str, list[Entry]] = defaultdict(list)
    for entry in read_contents(archive, package):
        entries[entry.path].append(entry)
    for resource in package.spine:
        if resource.media_type in _TEXTS and resource is not package.nav:
            where = f"{archive.path}: {resource.path}"
            document = read_document(decode_markup(archive.read(resource.path), where))
            yield from _split(document, entries[resource.path])


def _split(document: Document, entries: list[Entry]) -> Iterator[_Part]:
    """At the entries' anchors; of several at one place the first one counts."""
    titles: dict[int, str] = {}
    for entry in entries:
        titles.setdefault(document.anchors.get(entry.fragment, 0), entry.title)
    starts = sorted({0, *titles})
    for start, end in zip(starts, [*starts[1:], len(document.paragraphs)], strict=True):
        if paragraphs := document.paragraphs[start:end]:
            yield _Part(titles.get(start), paragraphs)
