"""Pieces that are all there become the audio book: measured once, then written with one gain for all of it."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from speechmill.cli.book.cover import Picture
from speechmill.cli.book.kinds import PART, Kind, is_folder, kind_of
from speechmill.cli.book.level import Level, level_for
from speechmill.cli.book.loudness import Loudness, Meter
from speechmill.cli.book.progress import BookDisplay
from speechmill.cli.book.script import Scene
from speechmill.cli.book.tags import Tags
from speechmill.cli.book.timeline import Block, Timeline, lay_out
from speechmill.cli.book.word_times import WordTimes
from speechmill.cli.book.writing import AudioFile, Dress
from speechmill.cli.submit.naming import clean
from speechmill.cli.submit.patience import Patience, Stopped
from speechmill.infra.errors import BadInput
from speechmill.infra.subtitles import cues, srt, vtt

Subtitles = Literal["srt", "vtt"]
_WRITERS: dict[Subtitles, Callable[..., str]] = {"srt": srt, "vtt": vtt}


@dataclass(frozen=True, slots=True)
class Finish:
    """How the book is to be. Without `loudness` it is as loud as the model has spoken it."""

    out: Path
    """Resolved."""
    tags: Tags
    cover: Picture | None
    bit_rate: int
    loudness: float | None
    subtitles: Subtitles | None

    @property
    def kind(self) -> Kind:
        return kind_of(Path(f"chapter{PART}")) if is_folder(self.out) else kind_of(self.out)

    def read_by(self, narrator: str) -> "Finish":
        return replace(self, tags=replace(self.tags, narrator=narrator))

    def check(self) -> None:
        """Before anything is spoken. Raises BadInput where the book could not be written."""
        _ = self.kind
        folder = self.out if self.out.is_dir() else self.out.parent
        if not folder.is_dir():
            raise BadInput(f"{self.out}: there is no folder {folder}")
        if not os.access(folder, os.W_OK):
            raise BadInput(f"{self.out}: nothing can be written to {folder}")


@dataclass(frozen=True, slots=True)
class Made:
    """`lufs` is its loudness, where that was asked for."""

    seconds: float
    files: list[Path]
    lufs: float | None
    gain_db: float


@dataclass(frozen=True, slots=True)
class Assembly:
    """`folder` holds the pieces, and takes what is not finished."""

    folder: Path
    finish: Finish
    words: WordTimes
    patience: Patience
    display: BookDisplay

    def make(self, scenes: Sequence[Scene]) -> Made:
        """Whoever reads the files finds whole ones. Raises FarmError, OSError, Stopped."""
        timeline = lay_out(scenes, self.folder)
        if self.finish.subtitles:
            self.words.fetch(timeline)
        target = self.finish.loudness
        self.display.assemble(timeline.frames * (1 if target is None else 2))
        measured = self._measure(timeline) if target is not None else None
        level = Level() if measured is None or target is None else level_for(measured, target)
        files = [file for part in self._parts(scenes, timeline) for file in self._write(*part, level)]
        reached = None if measured is None else measured.lufs + level.gain_db
        return Made(timeline.seconds, files, reached, level.gain_db)

    def _parts(self, scenes: Sequence[Scene], whole: Timeline) -> Iterator[tuple[Path, Timeline, Tags]]:
        out, tags = self.finish.out, self.finish.tags
        if not is_folder(out):
            yield out, whole, tags
            return
        out.mkdir(exist_ok=True)
        digits = len(str(scenes[-1].number))
        for scene in scenes:
            name = clean(f"{scene.number:0{digits}} {scene.title}")
            track = f"{scene.number}/{scenes[-1].number}"
            yield out / f"{name}{PART}", lay_out([scene], self.folder), replace(tags, title=scene.title, track=track)

    def _measure(self, timeline: Timeline) -> Loudness:
        meter = Meter(timeline.rate, timeline.channels)
        for block in self._blocks(timeline):
            meter.feed(block)
        return meter.finish()

    def _write(self, target: Path, timeline: Timeline, tags: Tags, level: Level) -> Iterator[Path]:
        finish, kind = self.finish, self.finish.kind
        words = self.words.words(timeline) if finish.subtitles else None
        dress = Dress(tags, finish.cover, finish.bit_rate, None if words is None else cues(words))
        fresh = self.folder / f"fresh{target.suffix}"
        with AudioFile(fresh, kind, timeline, dress) as file:
            for block in level.applied(self._blocks(timeline), timeline):
                file.write(block)
        fresh.replace(target)
        yield target
        if words is not None and finish.subtitles:
            beside = target.with_suffix(f".{finish.subtitles}")
            fresh.write_text(_WRITERS[finish.subtitles](words), encoding="utf-8")
            fresh.replace(beside)
            yield beside

    def _blocks(self, timeline: Timeline) -> Iterator[Block]:
        for block in timeline.blocks():
            if self.patience.stop.is_set():
                raise Stopped
            yield block
            self.display.passed(len(block))
