"""`speechmill dead`: jobs that were given up on, for an operator to look at and send again."""

import json
import sys
import time
from typing import Annotated

import typer

from speechmill.cli.remote import AsJson
from speechmill.cli.roles import Assignments, Profile

app = typer.Typer(help="Dead letters: jobs that failed too often.", no_args_is_help=True)


@app.command("list")
def list_dead(
    profile: Profile = None,
    assignments: Assignments = None,
    as_json: AsJson = False,
) -> None:
    """Jobs given up on, newest first."""
    from speechmill.cli.common import control_client
    from speechmill.infra.jobs import dead_jobs, read_record

    client = control_client(profile, assignments)
    jobs = dead_jobs(client)
    if not jobs:
        sys.stderr.write("no dead letters\n")
    for job, when_s in jobs:
        record = read_record(client, job)
        error = record.error if record else None
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(when_s))
        if as_json:
            print(json.dumps({"job": job, "at": int(when_s), "error": error}))
        else:
            print(f"{job}  {at}  {error['message'] if error else 'record expired'}")


@app.command("show")
def show(job: str, profile: Profile = None, assignments: Assignments = None) -> None:
    """Everything known about one job, without its text."""
    from dataclasses import asdict

    from speechmill.cli.common import control_client, fail
    from speechmill.infra.jobs import read_record, read_tasks

    client = control_client(profile, assignments)
    record = read_record(client, job)
    if record is None:
        fail(f"no job {job} is known")
    tasks = {}
    for task in read_tasks(client, job):
        fields = client.read_hash(client.keys.task(task))
        tasks[str(task)] = {key.decode(): value.decode() for key, value in fields.items()}
    print(json.dumps({**asdict(record), "tasks": tasks}, indent=2, default=str))


@app.command("redrive")
def redrive(
    jobs: Annotated[list[str] | None, typer.Argument(help="Job ids.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every dead letter.")] = False,
    profile: Profile = None,
    assignments: Assignments = None,
    as_json: AsJson = False,
) -> None:
    """Start a new take of these jobs."""
    from speechmill.cli.common import control_client, fail
    from speechmill.infra.jobs import dead_jobs
    from speechmill.infra.protocol import retry

    client = control_client(profile, assignments)
    names = list(jobs or [])
    if everything:
        names = [job for job, _ in dead_jobs(client)]
    elif not names:
        fail("name the jobs, or use --all")
    answers = {job: client.run(retry(job)) for job in names}
    for job, answer in answers.items():
        if as_json:
            print(json.dumps({"job": job, "queued": answer == "ok", "answer": answer}))
        else:
            print(f"{job}: {'queued again' if answer == 'ok' else answer}")
    if any(answer != "ok" for answer in answers.values()):
        raise typer.Exit(1)
