"""Windows of items become groups of jobs: each is sent until the farm has it, and is one group however often it is."""

import hashlib
from dataclasses import dataclass

from speechmill.cli.remote import Refused, Remote
from speechmill.cli.submit.patience import Patience
from speechmill.cli.submit.rows import Ended, Window
from speechmill.cli.submit.state import State

JOBS = "/v1/audio/jobs"
MOST_ITEMS = 1000
MOST_CHARS = 8 << 20
"""Of one window's body. One item may be larger, and is sent alone then."""
_TOO_MANY = "too_many_items"


@dataclass(slots=True)
class Sender:
    """Sends what nobody has sent yet. Used by one thread."""

    farm: Remote
    state: State
    patience: Patience
    most_items: int = MOST_ITEMS

    def settle(self) -> list[Ended]:
        """Windows that an earlier call wrote down without hearing what became of them. Raises as `next`."""
        return [end for window in self.state.unanswered() for end in self._send(window)[1]]

    def next(self) -> tuple[Window | None, list[Ended]] | None:
        """Send one window. Answers it if it was taken, and what of it was refused; None where all is sent.

        Raises Refused for what is wrong with all of it, Stopped.
        """
        window = self.state.next_window(self.most_items, MOST_CHARS)
        return None if window is None else self._send(window)

    def _send(self, window: Window) -> tuple[Window | None, list[Ended]]:
        lines = [f"{body}\n".encode() for body in self.state.bodies(window.id)]
        headers = {"Content-Type": "application/x-ndjson", "Idempotency-Key": self._key(window, lines)}
        try:
            group = self.patience.until_done(lambda: self.farm.told("POST", JOBS, content=iter(lines), headers=headers))
        except Refused as error:
            return None, self._refused(window, error, len(lines))
        self.state.accepted(window.id, group["id"])
        return Window(window.id, group["id"]), []

    def _key(self, window: Window, lines: list[bytes]) -> str:
        """The same for the same window of this state only, so that nobody else's jobs are taken for ours."""
        digest = hashlib.sha256(f"{self.state.lineage}/{window.id}\n".encode())
        for line in lines:
            digest.update(line)
        return digest.hexdigest()

    def _refused(self, window: Window, error: Refused, count: int) -> list[Ended]:
        """Nothing of it was taken: bad items are told, and all others go with the next windows."""
        is_large = error.status == 413 or error.code == _TOO_MANY
        if count > 1 and is_large:
            self.most_items = max(count // 2, 1)
            ends: list[Ended] = []
        elif error.details or is_large:
            bad = {one["index"]: str(one["error"]["message"]) for one in error.details} or {0: str(error)}
            order = self.state.order(window.id)
            ends = [Ended(order[index], "rejected", error=message) for index, message in bad.items()]
        else:
            self.state.send_again(window.id)
            raise error
        self.state.send_again(window.id)
        return ends
