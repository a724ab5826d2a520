"""`speechmill jobs watch`: how far jobs and groups are, until they have ended."""

import time
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import typer

from speechmill.cli.jobs.places import Ids, is_group, path_of
from speechmill.cli.remote import HERE, AsJson, Key, Remote, Url
from speechmill.cli.tables import print_json

if TYPE_CHECKING:
    from speechmill.cli.submit.patience import Patience

WAIT_S = 30
PAUSE_S = 1.0
SOME_FAILED = 2


def watch(ids: Ids, url: Url = HERE, key: Key = "", as_json: AsJson = False) -> None:
    """Tell every change, one after the other. Exit code 2 where something did not succeed.

    A farm that goes away meanwhile is waited for.
    """
    failed = False
    with Remote(url, key) as farm:
        for name in ids:  # before anything is waited for
            farm.told("GET", path_of(name))
        for name in ids:
            last: dict[str, Any] = {}
            for last in (_group if is_group(name) else _job)(farm, name):
                if as_json:
                    print_json(last)
                else:
                    print(f"{name}\t{last['status']}\t{progress_of(last)}", flush=True)
            failed |= not _is_well(last)
    if failed:
        raise typer.Exit(SOME_FAILED)


def progress_of(record: dict[str, Any]) -> str:
    """In words: of a job, how much audio there is; of a group, how many jobs are where; of a batch, how many lines."""
    counts = record.get("counts") or record.get("request_counts")
    if counts:
        return ", ".join(f"{count} {name}" for name, count in counts.items() if count or name == "total")
    if record.get("error"):
        return str(record["error"]["message"])
    return f"{record['progress']['audio_ms'] / 1000:.1f} s of audio"


def _is_well(record: dict[str, Any]) -> bool:
    if "counts" in record:
        return bool(record["counts"]["succeeded"] == record["counts"]["total"])
    return bool(record["status"] == "succeeded")


def _job(farm: Remote, name: str) -> Iterator[dict[str, Any]]:
    """Its versions; the farm holds the answer until there is another."""
    patience = _patience()
    job = patience.until_done(lambda: farm.told("GET", path_of(name)))
    yield job
    while job["finished_at"] is None:
        params = {"wait": WAIT_S, "since_version": job["version"]}
        answer = patience.until_done(partial(farm.ask, "GET", path_of(name), params=params))
        if answer.status_code != 304:
            job = answer.json()
            yield job


def _group(farm: Remote, name: str) -> Iterator[dict[str, Any]]:
    return changes(farm, path_of(name), "counts")


def changes(farm: Remote, path: str, counts: str) -> Iterator[dict[str, Any]]:
    """Of something asked for again and again: whenever its status or its counts are others, until it is over.

    Waits for a farm that is away. Raises Refused.
    """
    patience = _patience()
    before: tuple[Any, Any] | None = None
    while True:
        record = patience.until_done(lambda: farm.told("GET", path))
        now = (record["status"], record[counts])
        if now != before:
            yield record
            before = now
        if record["status"] in ("completed", "cancelled", "failed", "expired"):
            return
        time.sleep(PAUSE_S)


def _patience() -> "Patience":
    from speechmill.cli.submit.patience import Patience

    return Patience(partial(typer.echo, err=True))
