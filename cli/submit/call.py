"""One call of `speechmill submit`, from its options to its exit code."""

import sqlite3
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from speechmill.cli.again import coming_back
from speechmill.cli.remote import Remote
from speechmill.cli.submit.estimate import CHARS_PER_S, Volume, recent_rate
from speechmill.cli.submit.manifest import Manifest
from speechmill.cli.submit.outputs import Kept, Output, clear_parts
from speechmill.cli.submit.patience import Patience, Stopped, leaving
from speechmill.cli.submit.planning import Wishes, planned, refuse_taken
from speechmill.cli.submit.progress import Display
from speechmill.cli.submit.rows import Planned
from speechmill.cli.submit.sending import JOBS
from speechmill.cli.submit.sources.gather import STDIN, Reading, gather
from speechmill.cli.submit.state import State
from speechmill.cli.submit.work import Work
from speechmill.infra.errors import BadInput, FarmError

SOME_FAILED = 2
INTERRUPTED = 130
MOST_TOLD = 20
"""Failed items that are named at the end; the manifest has all of them."""


@dataclass(frozen=True, slots=True)
class Call:
    """What the options say. Both ways to use it answer the exit code."""

    farm: Remote
    display: Display
    output: Output
    sources: tuple[str, ...]
    reading: Reading
    wishes: Wishes
    overwrite: bool

    def estimate(self) -> int:
        """Reads all sources as if to send them. Raises BadInput, OSError."""
        volume = Volume()
        with tempfile.TemporaryDirectory() as folder, State(Path(folder) / "state") as state:
            state.plan(volume.counted(self._planned(None if self._state_file.exists() else state)))
        rate = recent_rate(self.farm)
        told = {
            "items": volume.items,
            "characters": volume.chars,
            "audio_s": round(volume.audio_s, 1),
            "farm_rate": round(rate, 2) if rate is not None else None,
            "time_s": round(volume.audio_s / rate, 1) if rate else None,
        }
        time = f"{told['time_s']} s at the {rate:.1f} × real time of its last jobs" if rate else "unknown to this farm"
        line = (
            f"{volume.items} items, {volume.chars} characters: about {volume.audio_s:.0f} s of audio "
            f"({CHARS_PER_S:.0f} characters a second), time {time}"
        )
        self.display.conclude(told, line)
        return 0

    def carry_out(self, retry_failed: bool, no_wait: bool) -> int:
        """Raises BadInput, OSError and what the farm refuses, all of which leave what was done as it is."""
        self.farm.told("GET", JOBS, params={"limit": 1})
        patience = Patience(self.display.say)
        with State(self._state_file) as state:
            work = Work(self.farm, state, self.output, patience, self.display, Manifest(self.output.manifest))
            clear_parts(self.output)
            state.belong_to(self.farm.base)
            try:
                with leaving(patience):
                    work.settle()
                self._prepare(state, retry_failed)
                with leaving(patience):
                    self._work(work, state, no_wait)
            except Stopped:
                self._say_goodbye(state)
                return INTERRUPTED
            return self._conclude(state)

    @property
    def _state_file(self) -> Path:
        return self.output.work / "state.sqlite3"

    def _planned(self, state: State | None) -> Iterator[Planned]:
        """Without a state nobody knows which files are ours, and none is refused."""
        items = planned(gather(self.sources, self.reading), self.wishes)
        return items if self.overwrite or state is None else refuse_taken(items, state, self.output)

    def _prepare(self, state: State, retry_failed: bool) -> None:
        if self.sources:
            state.plan(self._planned(state))
        else:
            state.take_up_all()
        if not state.count():
            raise BadInput("there is no text in it" if self.sources else "nothing is begun there: name a SOURCE")
        if retry_failed:
            state.retry_failed()
        kept = [
            Kept(row.name, row.bytes or 0, row.sha256 or "", row.stamp)
            for row in state.rows()
            if row.status == "succeeded"
        ]
        state.missing(self.output.lost(kept))

    def _work(self, work: Work, state: State, no_wait: bool) -> None:
        """However it ends, the manifest is whole behind it; where it cannot be, why it ended is told all the same."""
        counts = state.count()
        total = sum(counts.values())
        self.display.begin(total, total - counts.get("pending", 0))
        work.manifest.rewrite(state.ended())
        try:
            work.send_all() if no_wait else work.run()
        except BaseException:
            try:
                self._publish(work, state)
            except (FarmError, OSError, sqlite3.OperationalError) as error:
                self.display.say(f"the manifest is not what it should be: {error}")
            raise
        self._publish(work, state)

    def _publish(self, work: Work, state: State) -> None:
        work.manifest.rewrite(state.ended())
        self.output.publish()

    def _say_goodbye(self, state: State) -> None:
        """What was read from standard input is known by now, and need not be given again."""
        counts, unsent = state.count(), state.unsent()
        total, left = sum(counts.values()), counts.get("pending", 0)
        rest = f", but for {unsent} that were not sent yet" if unsent else ""
        self.display.say(
            f"left with {total - left} of {total} done; the farm goes on with the rest{rest}. {coming_back([STDIN])}"
        )

    def _conclude(self, state: State) -> int:
        counts = state.count()
        total, done, left = sum(counts.values()), counts.get("succeeded", 0), counts.get("pending", 0)
        failed = total - done - left
        if failed:
            self._tell_failed(state, failed)
        summary = {**counts, "total": total, "groups": state.groups(), "manifest": self.output.manifest_place}
        parts = [f"{done} of {total} done"] + [f"{failed} failed"] * bool(failed) + [f"{left} to come"] * bool(left)
        self.display.conclude(summary, f"{', '.join(parts)}; see {self.output.manifest_place}")
        return SOME_FAILED if failed else 0

    def _tell_failed(self, state: State, count: int) -> None:
        told = 0
        for row in state.rows():
            if row.status not in ("succeeded", "pending") and told < MOST_TOLD:
                told += 1
                self.display.say(f"{row.place}: {row.custom_id} {row.status}: {row.error}")
        if count > told:
            self.display.say(f"and {count - told} more, which the manifest names")
        self.display.say("--retry-failed speaks them again")
