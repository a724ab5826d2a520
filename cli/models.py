"""`speechmill models`: what a farm serves, and whether a checkpoint can be spoken from."""

from pathlib import Path
from typing import Annotated

import typer

from speechmill.cli.remote import HERE, AsJson, Key, Remote, Url
from speechmill.cli.tables import Columns, print_json, show_table

app = typer.Typer(help="What a farm serves, and checkpoints on this machine.")
COLUMNS: Columns = {
    "id": lambda model: model["id"],
    "status": lambda model: model["status"],
    "alias of": lambda model: model.get("alias_of"),
    "languages": lambda model: ", ".join(model["capabilities"]["languages"]),
    "Hz": lambda model: model["capabilities"]["native_sample_rate"],
    "voices": lambda model: model["capabilities"]["voices"],
    "clones": lambda model: model["capabilities"]["ref_audio"],
    "licence": lambda model: model["license"],
}


@app.callback(invoke_without_command=True)
def models(context: typer.Context, url: Url = HERE, key: Key = "", as_json: AsJson = False) -> None:
    """Models that the farm serves, and their other names."""
    if context.invoked_subcommand is None:
        with Remote(url, key) as farm:
            show_table(farm.told("GET", "/v1/models")["data"], COLUMNS, as_json)


@app.command("check")
def check(
    named: Annotated[str, typer.Argument(metavar="PATH", help="Folder of a checkpoint, or a model of the HF cache.")],
    as_json: AsJson = False,
) -> None:
    """Files, keys, shapes and tokenizer of a checkpoint, without loading it. Exit code 1 where something is missing."""
    from speechmill.infra.errors import BadInput
    from speechmill.models.checkpoints import check_checkpoint, recognise

    try:
        path = _checkpoint(named)
        model = recognise(path)
        findings = check_checkpoint(model, path)
    except LookupError as error:
        raise BadInput(str(error)) from None
    if as_json:
        print_json({"path": str(path), "model": model, "findings": findings})
    else:
        print("\n".join(findings) or f"{path} is complete: speechmill up --model {path} serves it as {model}")
    if findings:
        raise typer.Exit(1)


def _checkpoint(named: str) -> Path:
    """Raises LookupError, in one line, where this machine has none of that name."""
    from speechmill.models.checkpoints import find_checkpoint, folder_named
    from speechmill.models.registry import cards, served

    path = folder_named(named) or find_checkpoint(named, {})
    if path is not None:
        return path
    if named in cards() and cards()[named].own_weights:
        raise LookupError(f"{named} needs no checkpoint: its weights come with its package")
    if "/" not in named:
        served([named])
    raise LookupError(f"{named} is no folder, nor a model in this machine's cache: hf download {named} puts it there")
