"""What the user sees while it works: on a terminal a bar, for scripts one JSON object per item."""

import json
import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from speechmill.cli.submit.manifest import shown
from speechmill.cli.submit.rows import Row

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class Display:
    """A context manager. Messages go to standard error, results to standard output."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._began = time.monotonic()
        self._audio_s = 0.0
        self._failed = 0

    def __enter__(self) -> "Display":
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def begin(self, total: int, done: int) -> None:
        """From here on a bar tells how far it is."""
        if not sys.stderr.isatty():
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[failed]} failed"),
            TextColumn("{task.fields[rate]:.0f} × real time"),
            TimeRemainingColumn(),
        )
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task("", total=total, completed=done, failed=0, rate=0.0)
        self._bar.start()

    def say(self, message: str) -> None:
        """From any thread."""
        if self._bar is not None:
            self._bar.console.print(message, markup=False, highlight=False)
        else:
            sys.stderr.write(f"{message}\n")
            sys.stderr.flush()

    def ended(self, rows: Iterable[Row]) -> None:
        count = 0
        for row in rows:
            count += 1
            self._failed += row.status != "succeeded"
            self._audio_s += (row.duration_ms or 0) / 1000
            if self._as_json:
                print(json.dumps(shown(row), ensure_ascii=False), flush=True)
        if self._bar is not None and self._task is not None:
            rate = self._audio_s / max(time.monotonic() - self._began, 0.001)
            self._bar.update(self._task, advance=count, failed=self._failed, rate=rate)

    def conclude(self, summary: dict[str, Any], line: str) -> None:
        """The last that is said on standard output."""
        if self._bar is not None:
            self._bar.stop()
        print(json.dumps(summary, ensure_ascii=False) if self._as_json else line, flush=True)
