"""The `speechmill` command. Each subcommand has its own file and imports what it needs when it runs."""

import json
import re
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from speechmill.cli import batches, dead, keys, models, roles, say, up, webhooks
from speechmill.cli.bench import commands as bench
from speechmill.cli.book import command as book
from speechmill.cli.doctor import command as doctor
from speechmill.cli.jobs import commands as jobs
from speechmill.cli.submit import command as submit
from speechmill.cli.voices import commands as voices

HIDDEN = "***"
URL_PASSWORD = re.compile(r"(?<=://)([^/@:]*):[^/@]*@")

app = typer.Typer(
    name="speechmill",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)
app.command("up")(up.up)
app.command("api")(roles.api)
app.command("worker")(roles.worker)
app.add_typer(roles.celery_app, name="celery")
app.command("say")(say.say)
app.command("submit")(submit.submit)
app.command("book")(book.book)
app.add_typer(jobs.app, name="jobs")
app.add_typer(batches.app, name="batches")
app.add_typer(voices.app, name="voices")
app.add_typer(models.app, name="models")
app.command("doctor")(doctor.doctor)
app.add_typer(keys.app, name="keys")
app.add_typer(webhooks.app, name="webhooks")
app.add_typer(dead.app, name="dead")
app.add_typer(bench.app, name="bench")


def _show_version(asked: bool) -> None:
    from importlib.metadata import version

    if asked:
        print(f"speechmill {version('speechmill')}")
        raise typer.Exit


@app.callback()
def main_options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Text to speech through a durable worker farm. Start with `speechmill up`."""


@app.command("config")
def config(
    profile: Annotated[Path | None, typer.Option(help="TOML profile.")] = None,
    assignments: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override.")] = None,
) -> None:
    """Print the effective settings as JSON, secrets hidden."""
    from speechmill.cli.common import settings_from

    settings = settings_from(profile, assignments)
    shown = {name: _hide(name, value) for name, value in settings.model_dump(mode="json").items()}
    sys.stdout.write(json.dumps(shown, indent=2) + "\n")


def _hide(name: str, value: Any) -> Any:
    """Keys, and passwords inside URLs."""
    if isinstance(value, dict):
        return {key: _hide(key, inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_hide(name, inner) for inner in value]
    if name in ("secret_key", "key") and value:
        return HIDDEN
    return URL_PASSWORD.sub(rf"\1:{HIDDEN}@", value) if isinstance(value, str) else value


def main() -> None:
    """Entry point: every foreseen failure is one line and a non-zero exit."""
    from speechmill.cli.common import explained

    with explained():
        app()


if __name__ == "__main__":
    main()
