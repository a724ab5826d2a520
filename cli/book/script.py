"""What is spoken of a book, in which pieces, and how long it is silent behind each."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from speechmill.cli.submit.planning import KEPT_S, WEEK_S
from speechmill.cli.submit.rows import Planned, dump
from speechmill.cli.submit.sources.epub import Chapter
from speechmill.cli.submit.sources.xhtml import Paragraph
from speechmill.infra.errors import BadInput
from speechmill.infra.segments import split

PIECE_CHARS = 1500
"""A longer paragraph is spoken in several jobs: about so much is lost where a job must be begun anew."""
SENTENCE_S = 0.12
"""Silence inside of a paragraph that was cut, as the farm itself joins sentences."""
FORMAT = "flac"


@dataclass(frozen=True, slots=True)
class Pauses:
    """Seconds. A heading, and a line without any word such as `* * *`, is followed by twice a paragraph's."""

    paragraph: float
    chapter: float


@dataclass(frozen=True, slots=True)
class Piece:
    """The text of one job. `name` is the file of its audio, which follows from all that is asked for."""

    name: str
    body: str
    place: str
    chars: int
    pause_s: float


@dataclass(frozen=True, slots=True)
class Scene:
    """A chapter that has something to say; `number` is the one it has in the book."""

    number: int
    title: str
    pieces: tuple[Piece, ...]

    @property
    def chars(self) -> int:
        return sum(piece.chars for piece in self.pieces)


def script_of(
    chapters: Sequence[Chapter], numbers: Sequence[int], request: Mapping[str, Any], pauses: Pauses
) -> list[Scene]:
    """`request` holds the fields of the API that all jobs share. Chapters without any word are left out.

    Raises BadInput where nothing is left.
    """
    scenes = []
    for number in numbers:
        chapter = chapters[number - 1]
        pieces = list(_pieces(number, chapter.paragraphs, request, pauses))
        if pieces:
            pieces[-1] = replace(pieces[-1], pause_s=pauses.chapter)
            scenes.append(Scene(number, chapter.title or str(number), tuple(pieces)))
    if not scenes:
        raise BadInput("there is nothing in it that could be spoken")
    return scenes


def planned(scenes: Sequence[Scene]) -> Iterator[Planned]:
    """Each text once: what is said twice is spoken once."""
    seen: set[str] = set()
    for piece in (piece for scene in scenes for piece in scene.pieces):
        if piece.name not in seen:
            seen.add(piece.name)
            digest = piece.name.partition(".")[0]
            yield Planned(piece.name, digest, len(seen), piece.place, digest, piece.body)


def _pieces(
    chapter: int, paragraphs: Sequence[Paragraph], request: Mapping[str, Any], pauses: Pauses
) -> Iterator[Piece]:
    held: Piece | None = None
    for number, paragraph in enumerate(paragraphs, 1):
        if not any(char.isalnum() for char in paragraph.text):
            held = held and replace(held, pause_s=2 * pauses.paragraph)
            continue
        behind_s = pauses.paragraph * (2 if paragraph.is_heading else 1)
        texts = _parts(paragraph.text)
        for at, text in enumerate(texts, 1):
            if held:
                yield held
            pause_s = behind_s if at == len(texts) else SENTENCE_S
            held = _piece(text, f"chapter {chapter}, paragraph {number}", request, pause_s)
    if held:
        yield held


def _parts(text: str) -> list[str]:
    """Whole sentences, as many as a piece holds."""
    if len(text) <= PIECE_CHARS:
        return [text]
    parts = [""]
    for sentence in split(text, PIECE_CHARS):
        if parts[-1] and len(parts[-1]) + 1 + len(sentence) > PIECE_CHARS:
            parts.append("")
        parts[-1] = f"{parts[-1]} {sentence}".strip()
    return parts


def _piece(text: str, place: str, request: Mapping[str, Any], pause_s: float) -> Piece:
    fields = {**request, "input": text, "response_format": FORMAT}
    digest = hashlib.sha256(dump(fields).encode()).hexdigest()[:32]
    terms = {"custom_id": digest, "priority": "batch", "ttl_seconds": KEPT_S, "deadline_seconds": WEEK_S}
    return Piece(f"{digest}.{FORMAT}", dump({"request": fields, **terms}), place, len(text), pause_s)
