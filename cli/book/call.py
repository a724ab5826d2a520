"""One call of `speechmill book`, from its options to its exit code."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from speechmill.cli.again import coming_back
from speechmill.cli.book.assembling import Assembly, Finish, Made
from speechmill.cli.book.folder import claim
from speechmill.cli.book.progress import BookDisplay
from speechmill.cli.book.script import Scene, planned
from speechmill.cli.book.word_times import WordTimes
from speechmill.cli.remote import Remote
from speechmill.cli.submit.call import INTERRUPTED, MOST_TOLD, SOME_FAILED
from speechmill.cli.submit.manifest import Manifest
from speechmill.cli.submit.outputs import Folder, Kept, clear_parts
from speechmill.cli.submit.patience import Patience, Stopped, leaving
from speechmill.cli.submit.rows import Row
from speechmill.cli.submit.state import State
from speechmill.cli.submit.work import Work
from speechmill.infra.errors import FarmError

TOLERANCE_LU = 0.1


@dataclass(frozen=True, slots=True)
class Call:
    """What the options say."""

    farm: Remote
    display: BookDisplay
    scenes: Sequence[Scene]
    finish: Finish
    skip_failed: bool
    keep: bool

    def carry_out(self) -> int:
        """Raises BadInput, OSError and what the farm refuses, all of which leave what was done as it is."""
        folder = claim(self.finish.out)
        with State(Folder(folder).work / "state.sqlite3") as state:
            try:
                with self._patience() as patience:
                    failed = self._speak(state, folder, patience)
                if failed and not self.skip_failed:
                    self._tell_failed(failed)
                    return SOME_FAILED
                with self._patience() as patience:
                    made = self._assemble(state, folder, patience, {row.name for row in failed})
            except Stopped:
                self._say_goodbye(state)
                return INTERRUPTED
        if not self.keep:
            shutil.rmtree(folder)
        self._conclude(made, len(failed))
        return 0

    @contextmanager
    def _patience(self) -> Iterator[Patience]:
        """One for each part of the work, for it ends with its part."""
        patience = Patience(self.display.say)
        with leaving(patience):
            yield patience

    def _speak(self, state: State, folder: Path, patience: Patience) -> list[Row]:
        """Until every piece is there. Answers those of which that cannot be."""
        output = Folder(folder)
        work = Work(self.farm, state, output, patience, self.display, Manifest(output.manifest))
        clear_parts(output)
        state.belong_to(self.farm.base)
        work.settle()
        state.plan(planned(self.scenes))
        state.retry_failed()
        there = [row for row in state.rows() if row.status == "succeeded"]
        lost = output.lost([Kept(row.name, row.bytes or 0, row.sha256 or "", row.stamp) for row in there])
        state.missing(lost)
        work.manifest.rewrite(state.ended())
        self.display.expect(self.scenes, {row.name for row in there}.difference(lost))
        work.run()
        failed = [row for row in state.rows() if row.status != "succeeded"]
        if len(failed) == sum(state.count().values()):
            raise FarmError(f"nothing of it could be spoken: {failed[0].error}")
        return failed

    def _assemble(self, state: State, folder: Path, patience: Patience, failed: set[str]) -> Made:
        jobs = {row.name: row.job for row in state.rows() if row.job is not None}
        words = WordTimes(self.farm, patience, folder, jobs)
        scenes = list(_without(self.scenes, failed))
        return Assembly(folder, self.finish, words, patience, self.display).make(scenes)

    def _tell_failed(self, failed: Sequence[Row]) -> None:
        for row in failed[:MOST_TOLD]:
            self.display.say(f"{row.place}: {row.error}")
        if len(failed) > MOST_TOLD:
            self.display.say(f"and {len(failed) - MOST_TOLD} more")
        self.display.say("the same command tries them again; with --skip-failed the book is made without them")

    def _say_goodbye(self, state: State) -> None:
        counts = state.count()
        total, left = sum(counts.values()), counts.get("pending", 0)
        self.display.say(
            f"left with {total - left} of {total} pieces done; the farm goes on with what it has. {coming_back()}"
        )

    def _conclude(self, made: Made, skipped: int) -> None:
        reached, target = made.lufs, self.finish.loudness
        if reached is not None and target is not None and abs(reached - target) > TOLERANCE_LU:
            self.display.say(f"its peaks allow {reached:.1f} LUFS, not {target:.1f}")
        told = {
            "files": [str(path) for path in made.files],
            "chapters": len(self.scenes),
            "duration_s": round(made.seconds, 3),
            "lufs": None if reached is None else round(reached, 2),
            "gain_db": round(made.gain_db, 2),
            "skipped": skipped,
        }
        loud = "" if reached is None else f", {reached:.1f} LUFS"
        length = f"{made.seconds / 60:.1f} min" if made.seconds >= 60 else f"{made.seconds:.1f} s"
        self.display.conclude(told, f"{self.finish.out}: {len(self.scenes)} chapters, {length}{loud}")


def _without(scenes: Sequence[Scene], failed: set[str]) -> Iterator[Scene]:
    """The silence behind a chapter stays as it is."""
    for scene in scenes:
        pieces = [piece for piece in scene.pieces if piece.name not in failed]
        if pieces:
            pieces[-1] = replace(pieces[-1], pause_s=scene.pieces[-1].pause_s)
            yield replace(scene, pieces=tuple(pieces))
