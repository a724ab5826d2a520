"""Where each piece stands in the finished sound, and the sound itself, block by block."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

from speechmill.cli.book.script import Piece, Scene
from speechmill.infra.errors import FarmError

Block = NDArray[np.float32]
"""(frames, channels), full scale is 1."""
BLOCK_FRAMES = 1 << 15


@dataclass(frozen=True, slots=True)
class Placed:
    """A piece whose sound begins at frame `start` and has `frames` of them."""

    piece: Piece
    start: int
    frames: int


@dataclass(frozen=True, slots=True)
class Span:
    """A chapter with the silence behind it, in frames."""

    number: int
    title: str
    start: int
    end: int
    placed: tuple[Placed, ...]


@dataclass(frozen=True, slots=True)
class Timeline:
    """What one file holds. `spans` follow each other without gaps, from frame 0 on."""

    rate: int
    channels: int
    folder: Path
    spans: tuple[Span, ...]

    @property
    def frames(self) -> int:
        return self.spans[-1].end

    @property
    def seconds(self) -> float:
        return self.frames / self.rate

    def blocks(self) -> Iterator[Block]:
        """All of it in order. Raises FarmError for a piece that is not as it was."""
        at = 0
        for span in self.spans:
            for placed in span.placed:
                yield from self._silence(placed.start - at)
                yield from self._sound(placed)
                at = placed.start + placed.frames
            yield from self._silence(span.end - at)
            at = span.end

    def _silence(self, frames: int) -> Iterator[Block]:
        while frames > 0:
            count = min(frames, BLOCK_FRAMES)
            yield np.zeros((count, self.channels), np.float32)
            frames -= count

    def _sound(self, placed: Placed) -> Iterator[Block]:
        path, got = self.folder / placed.piece.name, 0
        try:
            with soundfile.SoundFile(path) as file:
                for block in file.blocks(BLOCK_FRAMES, dtype="float32", always_2d=True):
                    got += len(block)
                    yield block
        except soundfile.LibsndfileError as error:
            raise FarmError(f"{path}: it cannot be read ({error})") from None
        if got != placed.frames:
            raise FarmError(f"{path}: it ends early")


def lay_out(scenes: Sequence[Scene], folder: Path) -> Timeline:
    """Raises FarmError for a piece that is no sound file, or that another kind of sound is in."""
    kind: tuple[int, int] | None = None
    spans: list[Span] = []
    at = 0
    for scene in scenes:
        start, placed = at, []
        for piece in scene.pieces:
            rate, channels, frames = _facts(folder / piece.name)
            kind = kind or (rate, channels)
            if kind != (rate, channels):
                raise FarmError(f"{piece.place}: its sound has another rate than that in front of it")
            placed.append(Placed(piece, at, frames))
            at += frames + round(piece.pause_s * rate)
        spans.append(Span(scene.number, scene.title, start, at, tuple(placed)))
    assert kind is not None, "a book has chapters"
    return Timeline(*kind, folder, tuple(spans))


def _facts(path: Path) -> tuple[int, int, int]:
    """Rate, channels, frames."""
    try:
        told = soundfile.info(path)
    except soundfile.LibsndfileError as error:
        raise FarmError(f"{path}: it cannot be read ({error})") from None
    return told.samplerate, told.channels, told.frames
