"""What is known of a submission: a SQLite file that survives us, and that no two of us have open.

An item is known by its file's name. `digest` tells whether it is still what was asked for, `window` which request sent
it. A window is written down before it is sent, so whoever finds it here can send the very same request again.
"""

import sqlite3
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from speechmill.cli.submit.naming import folded
from speechmill.cli.submit.rows import Ended, Planned, Row, Window
from speechmill.infra.errors import BadInput, FarmError

_SCHEMA = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS windows (id INTEGER PRIMARY KEY AUTOINCREMENT, group_id TEXT);
CREATE TABLE IF NOT EXISTS items (
    folded TEXT PRIMARY KEY,  -- the name, equal for names that a file system takes for the same
    name TEXT NOT NULL,
    custom_id TEXT NOT NULL,
    run INTEGER NOT NULL,
    position INTEGER NOT NULL,
    place TEXT NOT NULL,
    digest TEXT NOT NULL,
    body TEXT,
    window INTEGER,
    status TEXT NOT NULL DEFAULT 'pending',
    job TEXT,
    duration_ms INTEGER,
    sha256 TEXT,
    bytes INTEGER,
    seed INTEGER,
    finish_reason TEXT,
    stamp INTEGER,
    error TEXT
) WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS by_custom_id ON items (run, custom_id);
CREATE INDEX IF NOT EXISTS by_position ON items (run, position);
CREATE INDEX IF NOT EXISTS unsent ON items (run, position) WHERE status = 'pending' AND window IS NULL;
CREATE INDEX IF NOT EXISTS by_window ON items (window, custom_id);
"""
_OF_THE_END = ("job", "duration_ms", "sha256", "bytes", "seed", "finish_reason", "error")
_ANEW = f"status='pending', window=NULL, {', '.join(f'{name}=NULL' for name in _OF_THE_END)}"
_HERE = "run = (SELECT max(run) FROM items)"
"""Of the last call that named sources."""


_ROW = ", ".join(Row.__annotations__)
_OF_THE_FILE = (sqlite3.OperationalError, sqlite3.DatabaseError)
"""Themselves: what else comes from them is a fault of ours."""


class State:
    """A context manager. Raises BadInput where another process has it open, or it is not ours.

    Raises FarmError behind its block for what went wrong with the file there, such as a full disk.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        try:
            self._db = sqlite3.connect(path, timeout=0.5, isolation_level=None)
        except sqlite3.Error as error:
            raise _explained(path, error) from None
        try:
            self._db.execute("PRAGMA locking_mode=EXCLUSIVE")
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.executescript(f"BEGIN EXCLUSIVE; {_SCHEMA} COMMIT")
            self.lineage = self._fact("lineage", uuid.uuid4().hex)
            """Random: what tells requests of this state from those of another with the same texts."""
        except sqlite3.Error as error:
            self._db.close()
            raise _explained(path, error) from None

    def __enter__(self) -> "State":
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._db.close()
        if type(error) in _OF_THE_FILE:
            raise _explained(self._path, error) from error

    def _fact(self, name: str, value: str) -> str:
        """What was written first."""
        self._db.execute("INSERT OR IGNORE INTO facts VALUES (?, ?)", (name, value))
        return str(self._db.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()[0])

    def belong_to(self, farm: str) -> None:
        """What another farm was at, this one begins anew."""
        if self._fact("farm", farm) != farm:
            with self._db:
                self._db.execute("BEGIN")
                self._db.execute("UPDATE facts SET value = ? WHERE name = 'farm'", (farm,))
                self._db.execute("UPDATE items SET window = NULL WHERE status = 'pending'")
                self._db.execute("DELETE FROM windows")

    def plan(self, items: Iterable[Planned]) -> None:
        """All or, where `items` raises, none of them. Raises BadInput for two items of one name."""
        with self._db:
            self._db.execute("BEGIN")
            run = self._db.execute("SELECT coalesce(max(run), 0) + 1 FROM items").fetchone()[0]
            for item in items:
                self._plan(item, run)

    def _plan(self, item: Planned, run: int) -> None:
        key = folded(item.name)
        known = self._db.execute("SELECT run, place, digest FROM items WHERE folded = ?", (key,)).fetchone()
        if known and known[0] == run:
            raise BadInput(f"{item.place} and {known[1]} would both be written to {item.name}: see --name-template")
        values = (item.name, item.custom_id, run, item.position, item.place, item.digest, item.body)
        try:
            if known is None:
                self._db.execute(
                    "INSERT INTO items (name, custom_id, run, position, place, digest, body, folded) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    (*values, key),
                )
                return
            anew = f", {_ANEW}" if known[2] != item.digest else ""
            self._db.execute(
                "UPDATE items SET name=?, custom_id=?, run=?, position=?, place=?, digest=?, body=?"
                f"{anew} WHERE folded=?",
                (*values, key),
            )
        except sqlite3.IntegrityError:
            other = self._db.execute(
                "SELECT place FROM items WHERE run = ? AND custom_id = ?", (run, item.custom_id)
            ).fetchone()
            raise BadInput(f"{item.place} and {other[0]} have the same custom_id, {item.custom_id!r}") from None

    def take_up_all(self) -> None:
        """Without sources: whatever was planned by any call and has not ended is of this call."""
        with self._db:
            self._db.execute("BEGIN")
            last = "(SELECT max(run) FROM items)"
            self._db.execute(f"UPDATE OR IGNORE items SET run = {last} WHERE status = 'pending' AND run < {last}")

    def missing(self, names: Sequence[str]) -> None:
        """Files that are not there any more: they are fetched again, or spoken again where the farm has them no more.

        The texts of all others that have succeeded are forgotten.
        """
        with self._db:
            self._db.execute("BEGIN")
            self._db.executemany(
                "UPDATE items SET status='pending' WHERE folded=?", [(folded(name),) for name in names]
            )
            self._db.execute("UPDATE items SET body=NULL WHERE status='succeeded'")

    def send_again(self, window: int) -> None:
        """The farm refused this window, or knows nothing of it any more: what is left of it is sent in another."""
        with self._db:
            self._db.execute("BEGIN")
            self._db.execute("UPDATE items SET window=NULL WHERE window=? AND status='pending'", (window,))
            self._db.execute("DELETE FROM windows WHERE id=?", (window,))

    def speak_again(self, name: str) -> None:
        """The farm has its audio no more."""
        self._db.execute("UPDATE items SET window=NULL, job=NULL WHERE folded=?", (folded(name),))

    def retry_failed(self) -> None:
        """What was refused, failed, cancelled or late is sent as if it were new."""
        self._db.execute(f"UPDATE items SET {_ANEW} WHERE {_HERE} AND status NOT IN ('pending', 'succeeded')")

    def unanswered(self) -> list[Window]:
        """Windows of which nobody knows whether the farm has them."""
        found = self._db.execute("SELECT id, group_id FROM windows WHERE group_id IS NULL ORDER BY id")
        return [Window(*row) for row in found]

    def open_windows(self) -> list[Window]:
        """Those which this call has to wait for, in the order in which they were sent."""
        found = self._db.execute(
            f"SELECT id, group_id FROM windows WHERE id IN (SELECT window FROM items WHERE {_HERE} "
            "AND status='pending' AND window IS NOT NULL) ORDER BY id"
        )
        return [Window(*row) for row in found]

    def next_window(self, most: int, most_chars: int) -> Window | None:
        """The next items that nobody has sent, written down as one window."""
        keys: list[tuple[str]] = []
        chars = 0
        unsent = self._db.execute(
            f"SELECT folded, length(body) FROM items WHERE {_HERE} AND status='pending' AND window IS NULL "
            "AND body IS NOT NULL ORDER BY position LIMIT ?",
            (most,),
        )
        for key, size in unsent.fetchall():
            if keys and chars + size > most_chars:
                break
            keys.append((key,))
            chars += size
        if not keys:
            return None
        with self._db:
            self._db.execute("BEGIN")
            window = self._db.execute("INSERT INTO windows (group_id) VALUES (NULL)").lastrowid
            assert window is not None
            self._db.executemany(f"UPDATE items SET window={window} WHERE folded=?", keys)
        return Window(window, None)

    def bodies(self, window: int) -> list[str]:
        """Of its items that have not ended, in their order."""
        return [body for body, _ in self._contents(window)]

    def order(self, window: int) -> list[str]:
        """Names of the items whose bodies these are."""
        return [name for _, name in self._contents(window)]

    def _contents(self, window: int) -> list[tuple[str, str]]:
        return self._db.execute(
            "SELECT body, name FROM items WHERE window=? AND status='pending' ORDER BY run, position", (window,)
        ).fetchall()

    def accepted(self, window: int, group: str) -> None:
        """The farm has it."""
        self._db.execute("UPDATE windows SET group_id=? WHERE id=?", (group, window))

    def waiting(self, window: int) -> dict[str, str]:
        """Names of its files that are not there, by `custom_id`."""
        return dict(
            self._db.execute("SELECT custom_id, name FROM items WHERE window=? AND status='pending'", (window,))
        )

    def end(self, ends: Sequence[Ended]) -> list[Row]:
        """All in one step. Answers the items as they stand now."""
        with self._db:
            self._db.execute("BEGIN")
            self._db.executemany(
                f"UPDATE items SET {', '.join(f'{name}=:{name}' for name in ('status', 'stamp', *_OF_THE_END))}, "
                "body=CASE WHEN :status='succeeded' THEN NULL ELSE body END WHERE folded=:folded",
                [{**asdict(one), "folded": folded(one.name)} for one in ends],
            )
        return [next(self._rows("folded = ?", folded(one.name))) for one in ends]

    def stranded(self) -> list[Row]:
        """Items that can be sent no more, because their text was in a source that is not given now."""
        return list(self._rows(f"{_HERE} AND status='pending' AND window IS NULL AND body IS NULL"))

    def rows(self) -> Iterator[Row]:
        """Of this call, in its order."""
        return self._rows(f"{_HERE} ORDER BY position")

    def ended(self) -> Iterator[Row]:
        """Of all calls: what the manifest tells."""
        return self._rows("status <> 'pending' ORDER BY run, position")

    def is_planned(self, name: str) -> bool:
        return self._db.execute("SELECT 1 FROM items WHERE folded=?", (folded(name),)).fetchone() is not None

    def count(self) -> dict[str, int]:
        """Items of this call by status."""
        return dict(self._db.execute(f"SELECT status, count(*) FROM items WHERE {_HERE} GROUP BY status"))

    def groups(self) -> list[str]:
        """All that this call's items are in."""
        found = self._db.execute(
            f"SELECT group_id FROM windows WHERE group_id IS NOT NULL AND id IN "
            f"(SELECT window FROM items WHERE {_HERE}) ORDER BY id"
        )
        return [group for (group,) in found]

    def unsent(self) -> int:
        query = f"SELECT count(*) FROM items LEFT JOIN windows ON window = id WHERE {_HERE} AND status='pending'"
        return int(self._db.execute(f"{query} AND group_id IS NULL").fetchone()[0])

    def _rows(self, where: str, *values: Any) -> Iterator[Row]:
        for row in self._db.execute(f"SELECT {_ROW} FROM items WHERE {where}", values):
            yield Row(*row)


def _explained(path: Path, error: BaseException | None) -> FarmError:
    if getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return BadInput(f"{path}: another command is at work with it ({error})")
    if isinstance(error, sqlite3.OperationalError):
        return FarmError(f"{path}: {error}")
    return BadInput(f"{path}: it is broken ({error}); delete it to begin anew")
