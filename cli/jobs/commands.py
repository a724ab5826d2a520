"""`speechmill jobs`: list, show, watch, cancel, retry, fetch and delete."""

from enum import StrEnum
from typing import Annotated, Any

import typer

from speechmill.cli.jobs.fetch import fetch
from speechmill.cli.jobs.places import JOBS, Ids, is_group, path_of
from speechmill.cli.jobs.watch import watch
from speechmill.cli.remote import HERE, AsJson, Key, Remote, Url
from speechmill.cli.tables import Columns, moment, print_json, show_deleted, show_fields, show_table

app = typer.Typer(help="Jobs of a farm, and groups of them.", no_args_is_help=True)
app.command("watch")(watch)
app.command("fetch")(fetch)


class Ending(StrEnum):
    """How jobs ended that can be sent again."""

    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


COLUMNS: Columns = {
    "id": lambda job: job["id"],
    "status": lambda job: job["status"],
    "created": lambda job: moment(job["created_at"]),
    "model": lambda job: job["model"],
    "voice": lambda job: job["voice"],
    "audio s": lambda job: f"{job['result']['duration_ms'] / 1000:.1f}" if job["result"] else None,
    "custom id": lambda job: job["custom_id"],
    "error": lambda job: job["error"]["message"] if job["error"] else None,
}


@app.command("list")
def list_all(
    status: Annotated[list[str] | None, typer.Option(help="queued, running, succeeded, failed …; repeatable.")] = None,
    model: Annotated[str | None, typer.Option(help="Only its jobs.")] = None,
    group: Annotated[str | None, typer.Option(metavar="ID", help="Only jobs of this group.")] = None,
    custom_id: Annotated[str | None, typer.Option(help="Your own name of a job.")] = None,
    dead: Annotated[bool, typer.Option("--dead", help="Only jobs given up on after too many tries.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="Most that are listed.")] = 20,
    url: Url = HERE,
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """Jobs of the key's project, newest first."""
    asked = {"status": status, "model": model, "group_id": group, "custom_id": custom_id, "dead": dead}
    with Remote(url, key) as farm:
        jobs = farm.pages(JOBS, {name: value for name, value in asked.items() if value}, most=limit)
        show_table(jobs, COLUMNS, as_json)


@app.command("show")
def show(
    ids: Ids,
    request: Annotated[bool, typer.Option("--request", help="Also what was asked for.")] = False,
    url: Url = HERE,
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """Everything that the farm tells of them."""
    with Remote(url, key) as farm:
        for name in ids:
            params = {"include": "request"} if request and not is_group(name) else {}
            show_fields(farm.told("GET", path_of(name), params=params), as_json)


@app.command("cancel")
def cancel(ids: Ids, url: Url = HERE, key: Key = "", as_json: AsJson = False) -> None:
    """Stop them. What of a group has ended stays as it is."""
    with Remote(url, key) as farm:
        for name in ids:
            _tell(farm.told("POST", f"{path_of(name)}/cancel"), as_json)


@app.command("retry")
def retry(
    ids: Ids,
    new_seed: Annotated[bool, typer.Option("--new-seed", help="Draw another seed; for jobs, not groups.")] = False,
    state: Annotated[
        list[Ending] | None,
        typer.Option(help="What of a group is spoken again, else what failed; repeatable."),
    ] = None,
    url: Url = HERE,
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """Speak again what failed, was cancelled or expired; of a group, what failed, or as --state says."""
    for name in ids:
        if new_seed and is_group(name):
            raise typer.BadParameter(f"{name} is a group, whose jobs keep their seeds", param_hint="--new-seed")
        if state and not is_group(name):
            raise typer.BadParameter(f"{name} is no group", param_hint="--state")
    of_group = {"states": list(dict.fromkeys(state))} if state else {}
    with Remote(url, key) as farm:
        for name in ids:
            body = of_group if is_group(name) else {"new_seed": new_seed}
            _tell(farm.told("POST", f"{path_of(name)}/retry", json=body), as_json)


@app.command("rm")
def remove(
    ids: Annotated[list[str], typer.Argument(metavar="ID…", help="Jobs (job_…).")],
    force: Annotated[bool, typer.Option("--force", help="Also jobs that have not ended.")] = False,
    url: Url = HERE,
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """Delete jobs, with their audio."""
    with Remote(url, key) as farm:
        for name in ids:
            if is_group(name):
                raise typer.BadParameter(f"{name} is a group: `speechmill jobs list --group` names its jobs")
            told = farm.told("DELETE", path_of(name), params={"force": str(force).lower()})
            show_deleted(name, told, as_json)


def _tell(record: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(record)
    else:
        print(f"{record['id']}\t{record['status']}", flush=True)
