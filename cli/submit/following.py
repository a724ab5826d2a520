"""Groups on the farm: what has ended of them since we looked last (speech_api §5.4.5)."""

import json
import time
from dataclasses import dataclass, field
from typing import Any

from speechmill.cli.remote import Refused, Remote
from speechmill.cli.submit.patience import Patience

GROUPS = "/v1/audio/job_groups"
SHORTEST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 3.0
ENDS = ("succeeded", "failed", "cancelled", "expired")


@dataclass(slots=True)
class Followed:
    """One window's group. `waiting` holds names by `custom_id`."""

    window: int
    group: str
    waiting: dict[str, str]
    after: str = ""
    seen: int = 0
    pause_s: float = SHORTEST_PAUSE_S
    due: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, slots=True)
class News:
    """`lines` are those of the results that belong to us, with the names of their items."""

    lines: list[tuple[str, dict[str, Any]]]
    unknown: bool = False
    """The farm does not know the group any more."""
    over: str = ""
    """The state of a group in which nothing more will happen."""


@dataclass(frozen=True, slots=True)
class Follower:
    """Asks for news; one request where there are none."""

    farm: Remote
    patience: Patience

    def look(self, followed: Followed) -> News:
        """Items that are told of here are not waited for any more. Raises Refused, Stopped."""
        try:
            group = self.patience.until_done(lambda: self.farm.told("GET", f"{GROUPS}/{followed.group}"))
            ended = sum(group["counts"][name] for name in ENDS)
            is_over = group["finished_at"] is not None
            lines: list[tuple[str, dict[str, Any]]] = []
            if ended > followed.seen or is_over:
                self.patience.until_done(lambda: self._read(followed, lines))
        except Refused as error:
            if error.status != 404:
                raise
            return News([], unknown=True)
        followed.seen = ended
        followed.pause_s = SHORTEST_PAUSE_S if lines else min(2 * followed.pause_s, LONGEST_PAUSE_S)
        followed.due = time.monotonic() + followed.pause_s
        return News(lines, over=group["status"] if is_over else "")

    def _read(self, followed: Followed, lines: list[tuple[str, dict[str, Any]]]) -> None:
        """Goes on behind the last line that it got, should the connection break, or from the first if that is gone."""
        params = {"after": followed.after} if followed.after else {}
        try:
            with self.farm.streamed(f"{GROUPS}/{followed.group}/results", params=params) as answer:
                for text in answer.iter_lines():
                    line = json.loads(text)
                    followed.after = line["cursor"]
                    name = followed.waiting.pop(line["custom_id"], None)
                    if name is not None:
                        lines.append((name, line))
        except Refused as error:
            if error.code != "invalid_cursor":
                raise
            followed.after = ""
            self._read(followed, lines)
