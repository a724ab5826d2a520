"""A book in Markdown (CommonMark): chapters by its headings, title and author by its front matter."""

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from speechmill.cli.submit.sources.epub import Book, Chapter
from speechmill.cli.submit.sources.xhtml import Paragraph, read_document

if TYPE_CHECKING:
    from markdown_it.token import Token

_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(.*?)^(?:---|\.\.\.)[ \t]*$", re.DOTALL | re.MULTILINE)
_FACT = re.compile(r"^(title|author|language):[ \t]*(.+?)[ \t]*$", re.MULTILINE)
_UNHEARD = ("fence", "code_block", "html_block", "html_inline", "image")


def read_markdown_book(text: str) -> Book:
    """Never fails; without text there are no chapters."""
    from markdown_it import MarkdownIt

    text = text.replace("\r\n", "\n").replace("\r", "\n")
    front = _FRONT_MATTER.match(text)
    facts = {name: value.strip("\"'") for name, value in _FACT.findall(front[1])} if front else {}
    body = text[front.end() :] if front else text
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    for rule in _UNHEARD:
        parser.add_render_rule(rule, _silent)
    lines = [f"{line}\n" for line in body.split("\n")]  # as the parser counts them
    cuts = [0, *_starts(parser.parse(body)), len(lines)]
    parts = [read_document(parser.render("".join(lines[start:end]))).paragraphs for start, end in pairwise(cuts)]
    authors = (facts["author"],) if "author" in facts else ()
    chapters = tuple(_chapter(paragraphs) for paragraphs in parts if paragraphs)
    return Book(facts.get("title", ""), authors, facts.get("language", ""), "", None, chapters)


def _silent(*_: object, **__: object) -> str:
    return ""


def _starts(tokens: "list[Token]") -> list[int]:
    """Lines, from 0, with headings of the highest level that occurs more than once, else of the highest."""
    headings = [(one.tag, one.map[0]) for one in tokens if one.type == "heading_open" and one.level == 0 and one.map]
    tags = [tag for tag, _ in headings]
    often = [tag for tag in tags if tags.count(tag) > 1]
    chosen = min(often or tags, default="")
    return [line for tag, line in headings if tag == chosen]


def _chapter(paragraphs: list[Paragraph]) -> Chapter:
    return Chapter(next((one.text for one in paragraphs if one.is_heading), ""), tuple(paragraphs))
