"""One call at work: sends, looks, fetches and writes down, until every item has ended."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from speechmill.cli.remote import Remote
from speechmill.cli.submit.fetching import Broken, Fetcher, Gone, Outcome, job_audio
from speechmill.cli.submit.following import Followed, Follower, News
from speechmill.cli.submit.manifest import Manifest
from speechmill.cli.submit.outputs import Output
from speechmill.cli.submit.patience import Patience, Stopped
from speechmill.cli.submit.progress import Display
from speechmill.cli.submit.rows import Ended, Status, Window
from speechmill.cli.submit.sending import Sender
from speechmill.cli.submit.state import State
from speechmill.infra.errors import FarmError

TICK_S = 0.2
HOPELESS = 100
"""Items refused before any was taken: what is wrong is wrong with all of them."""
STRANDED = "the farm has it no more; give its source again"
_ENDS: dict[str, Status] = {"job_cancelled": "cancelled", "job_expired": "expired"}


@dataclass
class Work:
    """What takes part in it. Only the thread that calls `run` touches the state."""

    farm: Remote
    state: State
    output: Output
    patience: Patience
    display: Display
    manifest: Manifest
    sender: Sender = field(init=False)
    follower: Follower = field(init=False)
    _followed: list[Followed] = field(default_factory=list)
    _accepted: int = 0
    _refused: int = 0
    _is_sending: bool = True
    """Whether there may be something that nobody has sent."""

    def __post_init__(self) -> None:
        self.sender = Sender(self.farm, self.state, self.patience)
        self.follower = Follower(self.farm, self.patience)

    def settle(self) -> None:
        """What an earlier call left in the air comes down, before anything is planned."""
        self._end(self.sender.settle())

    def send_all(self) -> None:
        """Without waiting for anything. Raises Refused, FarmError, Stopped."""
        while self._send():
            pass

    def run(self) -> None:
        """Raises Refused, OSError, FarmError for what stops all of it, and Stopped when the user wants to leave."""
        for window in self.state.open_windows():
            self._follow(window)
        fetcher = Fetcher(self.farm, self.output, self.patience)
        try:
            with fetcher:
                self._work(fetcher)
        finally:
            self._write_down(fetcher.take(0))

    def _work(self, fetcher: Fetcher) -> None:
        while self._is_sending or self._followed or fetcher.under_way:
            if self.patience.stop.is_set():
                raise Stopped
            self._is_sending = self._send()
            for followed in [one for one in self._followed if one.due <= time.monotonic()]:
                self._take(followed, self.follower.look(followed), fetcher)
            self._write_down(fetcher.take(0 if self._is_sending else TICK_S))

    def _send(self) -> bool:
        """Whether anything was left to be sent."""
        sent = self.sender.next()
        if sent is None:
            stranded = self.state.stranded()
            self._end([Ended(row.name, "failed", row.job, error=STRANDED) for row in stranded])
            return False
        window, refused = sent
        self._accepted += window is not None
        self._refused += len(refused)
        self._end(refused)
        if self._refused >= HOPELESS and not self._accepted:
            raise FarmError(f"the farm refuses all of it, such as {refused[0].name}: {refused[0].error}")
        if window is not None:
            self._follow(window)
        return True

    def _follow(self, window: Window) -> None:
        assert window.group is not None
        self._followed.append(Followed(window.id, window.group, self.state.waiting(window.id)))

    def _take(self, followed: Followed, news: News, fetcher: Fetcher) -> None:
        ends = []
        for name, line in news.lines:
            end = _unspoken(name, line)
            if end is not None:
                ends.append(end)
            elif line["response"]["body"]["url"] is None:
                self._speak_again(name)
            else:
                fetcher.fetch(name, job_audio(line["job_id"]), line)
        if news.unknown:
            self.state.send_again(followed.window)
            self._is_sending = True
            followed.waiting.clear()
        elif news.over:
            ends += [_never_begun(name, news.over) for name in followed.waiting.values()]
            followed.waiting.clear()
        self._end(ends)
        if not followed.waiting:
            self._followed.remove(followed)

    def _write_down(self, outcomes: Sequence[Outcome]) -> None:
        """Raises what makes all further work vain."""
        self._end([one for one in outcomes if isinstance(one, Ended)])
        for one in outcomes:
            if isinstance(one, Gone):
                self._speak_again(one.name)
            elif isinstance(one, Broken):
                raise one.error

    def _speak_again(self, name: str) -> None:
        self.state.speak_again(name)
        self._is_sending = True

    def _end(self, ends: Iterable[Ended]) -> None:
        rows = self.state.end(list(ends))
        self.manifest.add(rows)
        self.display.ended(rows)


def _unspoken(name: str, line: dict[str, Any]) -> Ended | None:
    """How an item that has no audio ended."""
    job, response = line["job_id"], line["response"]
    if response is None:
        error = line["error"]
        return Ended(name, _ENDS.get(error["code"], "failed"), job, error=error["message"])
    if response["status_code"] != 200:
        return Ended(name, "failed", job, error=response["body"]["error"]["message"])
    return None


def _never_begun(name: str, over: str) -> Ended:
    """Of a group in which nothing more will happen."""
    if over == "cancelled":
        return Ended(name, "cancelled", error="the group was cancelled")
    return Ended(name, "failed", error="the job was deleted")
