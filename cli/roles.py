"""`speechmill api|worker|celery`: one role alone, on any host that reaches Redis and S3."""

from pathlib import Path
from typing import Annotated

import typer

Profile = Annotated[Path | None, typer.Option(help="TOML profile; else $SPEECHMILL_PROFILE.")]
Model = Annotated[
    list[str] | None, typer.Option(help="Model to serve, or the folder of its checkpoint; repeatable. Default: all.")
]
Assignments = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override one setting.")]

celery_app = typer.Typer(help="Celery: what is not on the audio path.", no_args_is_help=True)


def api(
    profile: Profile = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on.")] = None,
    assignments: Assignments = None,
) -> None:
    """Serve the HTTP API."""
    from speechmill.api.serve import run
    from speechmill.cli.common import settings_from
    from speechmill.infra.logs import configure

    own = [f"api.host={host}"] * (host is not None) + [f"api.port={port}"] * (port is not None)
    settings = settings_from(profile, [*(assignments or ()), *own])
    configure("api", settings.log_level)
    run(settings)


def worker(
    profile: Profile = None,
    model: Model = None,
    stage: Annotated[str, typer.Option(help="Stages, comma separated; `models`, `farm`: all of a kind.")] = "",
    assignments: Assignments = None,
) -> None:
    """Run stages of models."""
    from speechmill.cli.common import chosen_models, settings_from
    from speechmill.infra.logs import configure
    from speechmill.workers.worker import run

    models, own = chosen_models(model or [])
    settings = settings_from(profile, [*(assignments or ()), *own])
    configure("worker", settings.log_level)
    run(settings, models, [name for name in stage.split(",") if name])


@celery_app.command("worker")
def celery_worker(
    profile: Profile = None,
    queue: Annotated[
        list[str] | None, typer.Option(help="`sweep`, `webhook` or `bulk`; repeatable. Default: all.")
    ] = None,
    assignments: Assignments = None,
) -> None:
    """Run Celery's tasks: retention, sweeping, webhooks, and jobs in bulk."""
    from speechmill.api.batches.tending import Tender
    from speechmill.cli.common import settings_from
    from speechmill.infra.logs import configure
    from speechmill.workers.celery_app import QUEUES, run_worker

    settings = settings_from(profile, assignments)
    configure("celery", settings.log_level)
    run_worker(settings, Tender(settings), queue or QUEUES)


@celery_app.command("beat")
def celery_beat(profile: Profile = None, assignments: Assignments = None) -> None:
    """Run Celery's clock. One for each farm."""
    from speechmill.cli.common import settings_from
    from speechmill.infra.logs import configure
    from speechmill.workers.celery_app import run_beat

    settings = settings_from(profile, assignments)
    configure("beat", settings.log_level)
    run_beat(settings)
