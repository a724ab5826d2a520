"""`speechmill batches`: files of requests in OpenAI's shape."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from speechmill.cli.jobs.fetch import Out, Overwrite, Target, fetch_lines
from speechmill.cli.jobs.watch import SOME_FAILED, changes, progress_of
from speechmill.cli.remote import HERE, AsJson, Key, Remote, Url
from speechmill.cli.tables import Columns, moment, print_json, show_fields, show_table

app = typer.Typer(help="Batches: files of requests in OpenAI's shape.", no_args_is_help=True)
BATCHES, FILES = "/v1/batches", "/v1/files"
UPLOAD_S = 600.0
BatchId = Annotated[str, typer.Argument(metavar="ID", help="From `speechmill batches list`.")]
COLUMNS: Columns = {
    "id": lambda batch: batch["id"],
    "status": lambda batch: batch["status"],
    "created": lambda batch: moment(batch["created_at"]),
    "lines": lambda batch: batch["request_counts"]["total"],
    "completed": lambda batch: batch["request_counts"]["completed"],
    "failed": lambda batch: batch["request_counts"]["failed"],
}


@app.command("create")
def create(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="JSON lines, as for OpenAI's batches.")],
    metadata: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="Repeatable.")] = None,
    url: Url = HERE,
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """Upload FILE and have its lines spoken."""
    body = {"endpoint": "/v1/audio/speech", "completion_window": "24h", "metadata": _pairs(metadata or [])}
    with Remote(url, key) as farm, file.open("rb") as content:
        form = {"files": {"file": (file.name, content)}, "data": {"purpose": "batch"}}
        uploaded = farm.told("POST", FILES, timeout=UPLOAD_S, **form)
        batch = farm.told("POST", BATCHES, json={**body, "input_file_id": uploaded["id"]})
    show_table([batch], {"id": COLUMNS["id"]}, as_json)


def _pairs(given: list[str]) -> dict[str, str]:
    pairs = [part.partition("=") for part in given]
    if not all(equals for _, equals, _ in pairs):
        raise typer.BadParameter("it must be NAME=VALUE", param_hint="--metadata")
    return {name: value for name, _, value in pairs}


@app.command("list")
def list_all(
    limit: Annotated[int, typer.Option(min=1, help="Most that are listed.")] = 20,
    url: Url = HERE,
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """Batches of the key's project, newest first."""
    with Remote(url, key) as farm:
        show_table(farm.pages(BATCHES, most=limit), COLUMNS, as_json)


@app.command("show")
def show(batch: BatchId, url: Url = HERE, key: Key = "", as_json: AsJson = False) -> None:
    """Everything that the farm tells of it."""
    with Remote(url, key) as farm:
        show_fields(farm.told("GET", _path(batch)), as_json)


@app.command("watch")
def watch(batch: BatchId, url: Url = HERE, key: Key = "", as_json: AsJson = False) -> None:
    """Tell every change, until it is over. Exit code 2 where a line did not succeed."""
    record: dict[str, Any] = {}
    with Remote(url, key) as farm:
        farm.told("GET", _path(batch))
        for record in changes(farm, _path(batch), "request_counts"):
            if as_json:
                print_json(record)
            else:
                print(f"{batch}\t{record['status']}\t{progress_of(record)}", flush=True)
    for fault in (record["errors"] or {"data": []})["data"]:
        typer.echo(f"line {fault['line']}: {fault['message']}", err=True)
    if record["status"] != "completed" or record["request_counts"]["failed"]:
        raise typer.Exit(SOME_FAILED)


@app.command("cancel")
def cancel(batch: BatchId, url: Url = HERE, key: Key = "", as_json: AsJson = False) -> None:
    """Stop it. What has been spoken is in its output all the same."""
    with Remote(url, key) as farm:
        record = farm.told("POST", f"{_path(batch)}/cancel")
    show_table([record], {name: COLUMNS[name] for name in ("id", "status")}, as_json)


@app.command("fetch")
def fetch(
    batch: BatchId,
    out: Out = Path("speech"),
    overwrite: Overwrite = False,
    url: Url = HERE,
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """Write the audio of a batch that is over, each line under its custom id. Exit code 2 where a line has none."""
    with Remote(url, key) as farm:
        record = farm.told("GET", _path(batch))
        files = [record[name] for name in ("output_file_id", "error_file_id") if record[name]]
        if not files:
            raise typer.BadParameter(f"{batch} is {record['status']}: it has no output", param_hint="ID")
        lines = (line for file in files for line in _lines(farm, file))
        target = Target(out, overwrite)
        fetch_lines(farm, lines, lambda line: _content(line["response"]["body"]["file_id"]), target, as_json)


def _lines(farm: Remote, file: str) -> Iterator[dict[str, Any]]:
    with farm.streamed(_content(file)) as answer:
        yield from map(json.loads, answer.iter_lines())


def _path(batch: str) -> str:
    return f"{BATCHES}/{quote(batch, safe='')}"


def _content(file: str) -> str:
    return f"{FILES}/{quote(file, safe='')}/content"
