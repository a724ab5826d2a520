"""The `speechmill` command. Each subcommand has its own file and imports what it needs when it runs."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from speechmill.cli import dead, roles, say, up
from speechmill.cli.bench import commands as bench

app = typer.Typer(
    name="speechmill",
    help="Text to speech through a durable worker farm. Start with `speechmill up`.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)
app.command("up")(up.up)
app.command("api")(roles.api)
app.command("worker")(roles.worker)
app.add_typer(roles.celery_app, name="celery")
app.command("say")(say.say)
app.add_typer(dead.app, name="dead")
app.add_typer(bench.app, name="bench")


@app.command("config")
def config(
    profile: Annotated[Path | None, typer.Option(help="TOML profile.")] = None,
    assignments: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override.")] = None,
) -> None:
    """Print the effective settings as JSON, secrets hidden."""
    from speechmill.cli.common import settings_from

    settings = settings_from(profile, assignments)
    hidden = {"s3": settings.s3.model_copy(update={"secret_key": "***" if settings.s3.secret_key else ""})}
    sys.stdout.write(settings.model_copy(update=hidden).model_dump_json(indent=2) + "\n")


def main() -> None:
    """Entry point: every foreseen failure is one line and a non-zero exit."""
    from speechmill.cli.common import explained

    with explained():
        app()


if __name__ == "__main__":
    main()
