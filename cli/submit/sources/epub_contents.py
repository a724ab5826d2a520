"""The table of contents of an EPUB: `nav.xhtml` of EPUB 3, else `toc.ncx` of EPUB 2."""

from dataclasses import dataclass
from html.parser import HTMLParser
from xml.etree.ElementTree import Element

from speechmill.cli.submit.sources.archive import Archive
from speechmill.cli.submit.sources.epub_package import Package, resolve
from speechmill.cli.submit.sources.safe_xml import local_name, parse_xml
from speechmill.cli.submit.sources.xhtml import decode_markup, plain
from speechmill.infra.errors import BadInput


@dataclass(frozen=True, slots=True)
class Entry:
    """Where something begins, and what it is called."""

    path: str
    fragment: str
    title: str


def read_contents(archive: Archive, package: Package) -> list[Entry]:
    """In the order of the table; nothing where there is none that can be read, for a book can be heard without."""
    for resource, read in ((package.nav, _of_nav), (package.ncx, _of_ncx)):
        if resource is None:
            continue
        try:
            entries = read(archive.read(resource.path), resource.path)
        except BadInput:
            continue
        if entries:
            return entries
    return []


def _of_nav(content: bytes, path: str) -> list[Entry]:
    reader = _NavReader()
    reader.feed(decode_markup(content, path))
    reader.close()
    return [Entry(*resolve(path, href), title) for href, title in reader.links if title]


class _NavReader(HTMLParser):
    """Links inside of `<nav epub:type="toc">`."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[tuple[str, str]] = []
        self._inside = False
        self._href: str | None = None
        self._parts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag == "nav":
            self._inside = "toc" in (attributes.get("epub:type") or "").split()
        elif tag == "a" and self._inside:
            self._href = attributes.get("href")
            self._parts.clear()

    def handle_endtag(self, tag: str) -> None:
        if tag == "nav":
            self._inside = False
        elif tag == "a" and self._href is not None:
            self.links.append((self._href, plain("".join(self._parts))))
            self._href = None

    def handle_data(self, data: str) -> None:
        self._parts.append(data)


def _of_ncx(content: bytes, path: str) -> list[Entry]:
    points = (one for one in parse_xml(content, path).iter() if local_name(one.tag) == "navPoint")
    return [entry for point in points if (entry := _point(point, path)).title]


def _point(point: Element, path: str) -> Entry:
    href = title = ""
    for part in point:
        if local_name(part.tag) == "navLabel":
            title = plain("".join(part.itertext()))
        elif local_name(part.tag) == "content":
            href = part.get("src", "")
    return Entry(*resolve(path, href), title)
