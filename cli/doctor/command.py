"""`speechmill doctor`: the command itself."""

import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from speechmill.cli.remote import HERE, AsJson, Key, Remote, Url
from speechmill.cli.roles import Assignments, Model, Profile
from speechmill.cli.tables import print_json

if TYPE_CHECKING:
    from speechmill.cli.doctor.finding import Finding
    from speechmill.configs.settings import Settings

STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def doctor(
    profile: Profile = None,
    model: Model = None,
    assignments: Assignments = None,
    url: Url = HERE,
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """Check this machine, and a farm if one answers; say what to do. Exit code 1 where something fails."""
    from speechmill.cli.common import farm_settings

    settings = farm_settings(profile, model, assignments)
    failed = False
    with Remote(url, key) as farm:
        for finding in _findings(settings, farm):
            failed |= finding.level == "fail"
            if as_json:
                print_json(asdict(finding))
            else:
                _print(finding)
    if failed:
        raise typer.Exit(1)


def _findings(settings: "Settings", farm: Remote) -> "Iterator[Finding]":
    from speechmill.cli.doctor import machine, servers
    from speechmill.cli.doctor.farm import check_farm

    yield machine.check_python()
    yield machine.check_packages()
    yield machine.check_torch()
    yield machine.check_disk(settings)
    yield machine.check_port(settings)
    yield machine.check_encoders()
    yield servers.check_redis(settings)
    yield servers.check_s3(settings)
    yield from machine.check_models(settings)
    yield from check_farm(farm)


def _print(finding: "Finding") -> None:
    if not sys.stdout.isatty():
        print("\t".join(part for part in (finding.level, finding.check, finding.what, finding.advice) if part))
        return
    from rich.console import Console
    from rich.text import Text

    line = Text.assemble((f"{finding.level:<5}", STYLES[finding.level]), f"{finding.check}: {finding.what}")
    Console().print(line)
    if finding.advice:
        Console().print(Text(f"     {finding.advice}", style="dim"))
