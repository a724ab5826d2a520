"""`speechmill keys`: who may call the API."""

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from speechmill.cli.remote import AsJson
from speechmill.cli.roles import Assignments, Profile
from speechmill.cli.tables import print_json

if TYPE_CHECKING:
    from speechmill.configs.settings import ApiKey
    from speechmill.infra.apikeys import KeyRecord

app = typer.Typer(help="API keys: make, list, revoke.", no_args_is_help=True)


@app.command("create")
def create(
    profile: Profile = None,
    assignments: Assignments = None,
    name: Annotated[str, typer.Option(help="For people to tell keys apart.")] = "",
    project: Annotated[str, typer.Option(help="Jobs, voices and limits of one project are its own.")] = "default",
    scope: Annotated[list[str] | None, typer.Option(help="Repeatable. Default: all but admin, local_media.")] = None,
    model: Annotated[list[str] | None, typer.Option(help="May use only this model; repeatable.")] = None,
    max_priority: Annotated[str, typer.Option(help="interactive, normal or batch.")] = "interactive",
    api_profile: Annotated[str | None, typer.Option(help="native, openai or openwebui.")] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=N", help="Such as requests_per_minute=60; repeatable. See configs/default.toml."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a key and print it. It is shown this once; only its SHA-256 is kept."""
    from speechmill.cli.common import control_client
    from speechmill.infra.apikeys import create_key

    fields: dict[str, object] = {"name": name, "project": project, "max_priority": max_priority}
    fields |= {"profile": api_profile, "models": model or (), "limits": _limits(limit or [])}
    wanted = _checked(fields | ({"scopes": scope} if scope else {}))
    record, key = create_key(control_client(profile, assignments), wanted)
    if as_json:
        print(record.model_copy(update={"key": key}).model_dump_json())
    else:
        sys.stderr.write(f"{record.id} for project {record.project}; this is the only time the key is shown:\n")
        print(key)


def _limits(given: list[str]) -> dict[str, str]:
    return dict(part.partition("=")[::2] for part in given)


def _checked(fields: dict[str, object]) -> "ApiKey":
    from pydantic import ValidationError

    from speechmill.cli.common import fail
    from speechmill.configs.settings import ApiKey

    try:
        return ApiKey.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        fail(f"{'.'.join(map(str, first['loc']))}: {first['msg']}")


@app.command("list")
def list_all(profile: Profile = None, assignments: Assignments = None, as_json: AsJson = False) -> None:
    """Keys by id, oldest first; never the keys themselves."""
    from speechmill.cli.common import control_client
    from speechmill.infra.apikeys import list_keys

    records = list_keys(control_client(profile, assignments))
    if not records and not as_json:
        sys.stderr.write("no keys\n")
    for record in records:
        print(record.model_dump_json(exclude={"key"}) if as_json else _line(record))


def _line(record: "KeyRecord") -> str:
    made = time.strftime("%Y-%m-%d", time.localtime(record.created_at))
    parts = (record.id, f"…{record.hint}", made, record.project, ",".join(record.scopes), record.name)
    return "  ".join(part for part in parts if part)


@app.command("revoke")
def revoke(
    key_id: Annotated[str, typer.Argument(help="From `speechmill keys list`.")],
    profile: Profile = None,
    assignments: Assignments = None,
    as_json: AsJson = False,
) -> None:
    """Take a key back. Calls that are running go on."""
    from speechmill.cli.common import control_client, fail
    from speechmill.infra.apikeys import revoke_key

    if not revoke_key(control_client(profile, assignments), key_id):
        fail(f"there is no key {key_id}; see `speechmill keys list`")
    if as_json:
        print_json({"id": key_id, "revoked": True})
    else:
        sys.stderr.write(f"revoked {key_id}\n")
