"""`speechmill jobs fetch`: the audio of jobs and groups as files."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from speechmill.cli.jobs.places import Ids, is_group, path_of
from speechmill.cli.remote import HERE, AsJson, Key, Remote, Url
from speechmill.cli.tables import print_json

if TYPE_CHECKING:
    from speechmill.cli.submit.rows import Ended

Out = Annotated[Path, typer.Option("--out", "-o", help="Folder to write to.")]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Write over files that are there and come from elsewhere.")
]
Line = dict[str, Any]
"""Of the results of a group, or what says the same of one job."""
SOME_FAILED = 2


def fetch(
    ids: Ids,
    out: Out = Path("speech"),
    overwrite: Overwrite = False,
    url: Url = HERE,
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """Write what has succeeded by now, each under its custom id. Exit code 2 where something has no audio."""
    from speechmill.cli.submit.fetching import job_audio

    with Remote(url, key) as farm:
        lines = (line for name in ids for line in (_of_group if is_group(name) else _of_job)(farm, name))
        fetch_lines(farm, lines, lambda line: job_audio(line["job_id"]), Target(out, overwrite), as_json)


@dataclass(frozen=True, slots=True)
class Target:
    """Where files go."""

    out: Path
    overwrite: bool

    def check(self, name: str, line: Line) -> None:
        """Raises BadInput where another file than the one that comes has its name."""
        from speechmill.cli.submit.outputs import Folder, Kept
        from speechmill.infra.errors import BadInput

        folder, body = Folder(self.out), line["response"]["body"]
        same = Kept(name, int(body["bytes"]), str(body["sha256"]), None)
        if not self.overwrite and folder.exist()(name) and folder.lost([same]):
            place = self.out / name
            raise BadInput(f"{place} is there already, and from elsewhere; take another --out, or say --overwrite")


def fetch_lines(
    farm: Remote, lines: Iterator[Line], audio: Callable[[Line], str], target: Target, as_json: bool
) -> None:
    """`audio` is where a line's audio is. Raises FarmError, OSError, and Exit where a line has none."""
    from speechmill.cli.submit.fetching import Fetcher
    from speechmill.cli.submit.outputs import Folder
    from speechmill.cli.submit.patience import Patience

    names: set[str] = set()
    failed = 0
    with Fetcher(farm, Folder(target.out), Patience(lambda message: print(message, file=sys.stderr))) as fetcher:
        for line in lines:
            if line["response"] is None or line["response"]["status_code"] != 200:
                failed += 1
                print(f"{line['custom_id'] or line.get('job_id')}: {_why(line)}", file=sys.stderr)
                continue
            name = _name(line, names)
            target.check(name, line)
            fetcher.fetch(name, audio(line), line)
        while fetcher.under_way:
            failed += sum(not _told(end, target.out, as_json) for end in _ends(fetcher.take(1.0)))
    if failed:
        raise typer.Exit(SOME_FAILED)


def _of_group(farm: Remote, name: str) -> Iterator[Line]:
    import json

    with farm.streamed(f"{path_of(name)}/results") as answer:
        yield from map(json.loads, answer.iter_lines())


def _of_job(farm: Remote, name: str) -> Iterator[Line]:
    job = farm.told("GET", path_of(name))
    response = {"status_code": 200, "body": job["result"]} if job["result"] else None
    error = job["error"] or {"message": f"the job is {job['status']}"}
    yield {"custom_id": job["custom_id"], "job_id": job["id"], "response": response, "error": error}


def _why(line: Line) -> str:
    error = line["error"] or line["response"]["body"]["error"]
    return str(error["message"])


def _name(line: Line, taken: set[str]) -> str:
    """By the user's own name, where no other file has it, nor one that some disk takes for the same; taken from now."""
    from speechmill.cli.submit.naming import clean, extension_of, folded

    body = line["response"]["body"]
    own = clean(line["custom_id"] or line.get("job_id") or body["file_id"])
    other = clean(str(line.get("job_id") or body.get("file_id")))
    extension = extension_of(body["format"])
    name = f"{other if folded(f'{own}.{extension}') in taken else own}.{extension}"
    taken.add(folded(name))
    return name


def _ends(outcomes: list[Any]) -> "Iterator[Ended]":
    from speechmill.cli.submit.fetching import Broken, Gone
    from speechmill.cli.submit.rows import Ended

    for outcome in outcomes:
        if isinstance(outcome, Broken):
            raise outcome.error
        yield Ended(outcome.name, "failed", error="the farm has it no more") if isinstance(outcome, Gone) else outcome


def _told(end: "Ended", out: Path, as_json: bool) -> bool:
    """Whether it is there."""
    if end.status != "succeeded":
        print(f"{end.name}: {end.error}", file=sys.stderr)
        return False
    if as_json:
        print_json({"file": str(out / end.name), "job_id": end.job, "bytes": end.bytes, "sha256": end.sha256})
    else:
        print(out / end.name, flush=True)
    return True
