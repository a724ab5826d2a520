"""`speechmill dead`: jobs that were given up on, for an operator to look at and send again."""

import json
import time
from typing import TYPE_CHECKING, Annotated

import typer

from speechmill.cli.roles import Assignments, Profile

if TYPE_CHECKING:
    from speechmill.infra.client import Client

app = typer.Typer(help="Dead letters: jobs that failed too often.", no_args_is_help=True)


def _client(profile: Profile, assignments: Assignments) -> "Client":
    from speechmill.cli.common import settings_from
    from speechmill.infra.connect import make_client
    from speechmill.infra.embedded import running_valkey

    settings = settings_from(profile, assignments)
    if not settings.redis.control_url:
        settings.redis.control_url = running_valkey(settings.data_dir / "valkey")
    client = make_client(settings)
    client.load()
    return client


@app.command("list")
def list_dead(
    profile: Profile = None,
    assignments: Assignments = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Jobs given up on, newest first."""
    from speechmill.infra.jobs import read_record

    client = _client(profile, assignments)
    for raw, when in client.server("control").zrevrange(client.keys.dead(), 0, -1, withscores=True):
        record = read_record(client, raw.decode())
        error = record.error if record else None
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(when / 1000))
        if as_json:
            print(json.dumps({"job": raw.decode(), "at": int(when / 1000), "error": error}))
        else:
            print(f"{raw.decode()}  {at}  {error['message'] if error else 'record expired'}")


@app.command("show")
def show(job: str, profile: Profile = None, assignments: Assignments = None) -> None:
    """Everything known about one job, without its text."""
    from dataclasses import asdict

    from speechmill.cli.common import fail
    from speechmill.infra.jobs import read_record, read_tasks

    client = _client(profile, assignments)
    record = read_record(client, job)
    if record is None:
        fail(f"no job {job} is known")
    tasks = {}
    for task in read_tasks(client, job):
        fields = client.server("control").hgetall(client.keys.task(task))
        tasks[str(task)] = {key.decode(): value.decode() for key, value in fields.items()}
    print(json.dumps({**asdict(record), "tasks": tasks}, indent=2, default=str))


@app.command("redrive")
def redrive(
    jobs: Annotated[list[str] | None, typer.Argument(help="Job ids.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every dead letter.")] = False,
    profile: Profile = None,
    assignments: Assignments = None,
) -> None:
    """Start a new take of these jobs."""
    from speechmill.cli.common import fail
    from speechmill.infra.protocol import retry

    client = _client(profile, assignments)
    names = list(jobs or [])
    if everything:
        names = [raw.decode() for raw in client.server("control").zrange(client.keys.dead(), 0, -1)]
    elif not names:
        fail("name the jobs, or use --all")
    answers = {job: client.run(retry(job)) for job in names}
    for job, answer in answers.items():
        print(f"{job}: {'queued again' if answer == 'ok' else answer}")
    if any(answer != "ok" for answer in answers.values()):
        raise typer.Exit(1)
