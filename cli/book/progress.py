"""What the user sees of a book: the chapter, how fast it is spoken, and when it will be done."""

import sys
import time
from collections.abc import Iterable, Sequence

from speechmill.cli.book.script import Scene
from speechmill.cli.submit.progress import Display
from speechmill.cli.submit.rows import Row


class BookDisplay(Display):
    """Progress is counted in characters, for pieces differ in length; messages and the end are as in `submit`."""

    def __init__(self, as_json: bool) -> None:
        super().__init__(as_json)
        self._chars: dict[str, int] = {}
        self._spoken_s = 0.0
        self._since = time.monotonic()

    def __enter__(self) -> "BookDisplay":
        return self

    def expect(self, scenes: Sequence[Scene], done: Iterable[str]) -> None:
        """From here on a bar tells how far it is. `done` are names of pieces that are there."""
        self._chars = {piece.name: piece.chars for scene in scenes for piece in scene.pieces}
        self._since = time.monotonic()
        self._start("{task.fields[note]}", sum(self._chars.values()), sum(self._chars.get(name, 0) for name in done))

    def ended(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self._spoken_s += (row.duration_ms or 0) / 1000
            rate = self._spoken_s / max(time.monotonic() - self._since, 0.001)
            self._step(self._chars.get(row.name, 0), f"{row.place.partition(',')[0]}, {rate:.0f} × real time")

    def assemble(self, frames: int) -> None:
        """The same for putting it together, once or twice through all of its sound."""
        self._start("putting it together", frames, 0)

    def passed(self, frames: int) -> None:
        self._step(frames, "")

    def _start(self, text: str, total: int, done: int) -> None:
        if self._bar is not None:
            self._bar.stop()
        if not sys.stderr.isatty():
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        columns = (TextColumn(text), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task("", total=total, completed=done, note="")
        self._bar.start()

    def _step(self, amount: int, note: str) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, advance=amount, note=note)
