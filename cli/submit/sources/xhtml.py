"""Paragraphs of an XHTML or HTML document, as they are to be heard."""

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser

from speechmill.infra.errors import BadInput


def _names(of: str) -> frozenset[str]:
    return frozenset(of.split())


HEADINGS = _names("h1 h2 h3 h4 h5 h6")
_BLOCKS = HEADINGS | _names(
    "address article aside blockquote body caption center dd details div dl dt fieldset figcaption figure footer "
    "form header hr li main ol p pre section summary table tbody td tfoot th thead tr ul"
)
_SILENT = _names("head math nav noscript object rp rt script style svg template")
_EMPTY = _names("area base br col embed hr img input link meta param source track wbr")
_UNHEARD_TYPES = _names(
    "noteref pagebreak footnote footnotes endnote endnotes rearnote rearnotes "
    "doc-noteref doc-pagebreak doc-footnote doc-endnote doc-endnotes"
)
"""Of `epub:type` and `role`: what a listener would stumble over in the middle of a sentence."""
_DECLARED = re.compile(rb"""^[^>]{0,200}?\bencoding\s*=\s*["']([A-Za-z0-9._-]+)["']""")
_SPACE = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class Paragraph:
    """One block of text on one line; never empty."""

    text: str
    is_heading: bool = False


@dataclass(slots=True)
class Document:
    """What there is to hear of one file."""

    paragraphs: list[Paragraph] = field(default_factory=list)
    anchors: dict[str, int] = field(default_factory=dict)
    """By `id`: the index of the first paragraph that ends behind it."""


def decode_markup(content: bytes, where: str) -> str:
    """By byte order mark, XML declaration, else UTF-8. Raises BadInput."""
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        encoding = "utf-16"
    else:
        declared = _DECLARED.match(content)
        encoding = declared[1].decode() if declared else "utf-8"
    try:
        return content.decode("utf-8-sig" if encoding.lower() in ("utf-8", "utf8") else encoding)
    except (UnicodeError, LookupError) as error:
        raise BadInput(f"{where}: its text cannot be read ({error})") from None


def read_document(markup: str) -> Document:
    """Never fails: what is not closed is closed, as browsers do."""
    reader = _Reader()
    reader.feed(markup)
    reader.close()
    reader.end_block()
    return reader.document


def plain(text: str) -> str:
    """On one line, without soft hyphens and zero-width characters."""
    return _SPACE.sub(" ", text.translate({0xAD: None, 0x200B: None, 0xFEFF: None})).strip()


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.document = Document()
        self._parts: list[str] = []
        self._is_heading = False
        self._silent_tag = ""
        self._silent_depth = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if self._silent_tag:
            self._silent_depth += tag == self._silent_tag
        elif tag not in _EMPTY and (tag in _SILENT or _is_unheard(attributes)):
            self._silent_tag, self._silent_depth = tag, 1
        elif tag in _BLOCKS:
            self.end_block()
            self._is_heading = tag in HEADINGS
        elif tag == "br":
            self._parts.append(" ")
        if name := attributes.get("id") or (attributes.get("name") if tag == "a" else None):
            self.document.anchors.setdefault(name, len(self.document.paragraphs))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _EMPTY:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._silent_tag:
            self._silent_depth -= tag == self._silent_tag
            self._silent_tag = self._silent_tag if self._silent_depth else ""
        elif tag in _BLOCKS:
            self.end_block()

    def handle_data(self, data: str) -> None:
        if not self._silent_tag:
            self._parts.append(data)

    def unknown_decl(self, data: str) -> None:
        if data.startswith("CDATA["):
            self.handle_data(data.removeprefix("CDATA["))

    def end_block(self) -> None:
        if text := plain("".join(self._parts)):
            self.document.paragraphs.append(Paragraph(text, self._is_heading))
        self._parts.clear()
        self._is_heading = False


def _is_unheard(attributes: dict[str, str | None]) -> bool:
    types = f"{attributes.get('epub:type') or ''} {attributes.get('role') or ''}".lower().split()
    return "hidden" in attributes or not _UNHEARD_TYPES.isdisjoint(types)
