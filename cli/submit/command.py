"""`speechmill submit`: the command itself."""

import os
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from speechmill.cli.remote import HERE, AsJson, Key, Remote, Url

HELP = """Speak every text of SOURCE… into a file of its own.

Sources: .txt (see --split); .md (headings, paragraphs, list items; no code); .csv and .tsv (a header, columns named as
the fields of the API: text or input, custom_id, voice, model, speed, seed, metadata.KEY …; an empty cell says nothing);
.jsonl (objects of such fields, or {"custom_id": …, "request": {…}}); .srt and .vtt (a cue each); .epub (a paragraph
each); a folder of such files; - for standard input. All of them are UTF-8.

The same command again goes on where the last one stopped: what is in --out is not fetched again, what the farm has is
not asked for again, and lines that have changed are spoken anew. Without SOURCE it goes on with what is begun there.

The farm keeps a result for two days from its end, unless the item's ttl_seconds says otherwise; what it has no more by
the time that it is asked for is spoken again.

Exit codes: 0 all is there; 1 nothing could be done, or not all of it; 2 some items failed, or the command was not
understood; 130 stopped by Ctrl-C, which leaves the farm at work.
"""


def submit(
    sources: Annotated[list[str] | None, typer.Argument(metavar="SOURCE…", help="Files, folders, or `-`.")] = None,
    out: Annotated[str, typer.Option("--out", "-o", help="A folder, or s3://bucket/prefix.")] = "speech",
    model: Annotated[str | None, typer.Option(help="Where an item names none.")] = None,
    voice: Annotated[str | None, typer.Option(help="Where an item names none.")] = None,
    language: Annotated[str | None, typer.Option(help="Of the text, where an item names none.")] = None,
    instructions: Annotated[
        str | None, typer.Option(help="How to speak, or what the voice is like, where an item does not say.")
    ] = None,
    response_format: Annotated[
        Literal["wav", "mp3", "flac", "opus", "aac", "pcm"], typer.Option("--format", help="Where an item names none.")
    ] = "wav",
    priority: Annotated[
        Literal["interactive", "normal", "batch"], typer.Option(help="`batch` lets all others go first.")
    ] = "batch",
    webhook: Annotated[str | None, typer.Option(metavar="URL", help="Told of the end of each job.")] = None,
    name_template: Annotated[
        str,
        typer.Option(help="Of files: {index} {custom_id} {source} {voice} {model} {ext}, such as {index:05d}.{ext}"),
    ] = "{custom_id}.{ext}",
    split: Annotated[Literal["line", "paragraph"], typer.Option(help="What is one item of a .txt.")] = "line",
    input_format: Annotated[
        str | None, typer.Option(help="Kind of standard input, and of files whose ending tells none; else txt.")
    ] = None,
    ignore_unknown: Annotated[
        bool, typer.Option("--ignore-unknown", help="Leave out columns and keys that the API does not know.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Write over files that are there and come from elsewhere.")
    ] = False,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Speak again what failed before.")] = False,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Hand it to the farm, and leave.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the sources, count, estimate; send nothing.")
    ] = False,
    as_json: AsJson = False,
    url: Url = HERE,
    key: Key = "",
) -> None:
    from speechmill.cli.submit.call import INTERRUPTED, Call
    from speechmill.cli.submit.naming import check_template
    from speechmill.cli.submit.outputs import output_of
    from speechmill.cli.submit.planning import Wishes
    from speechmill.cli.submit.progress import Display
    from speechmill.cli.submit.sources.gather import KINDS, Reading

    if input_format is not None and input_format not in KINDS:
        raise typer.BadParameter(f"it is none of {', '.join(KINDS)}", param_hint="--input-format")
    if dry_run and not sources:
        raise typer.BadParameter("without SOURCE there is nothing to estimate", param_hint="--dry-run")
    check_template(name_template)
    request = {"model": model, "voice": voice, "language": language, "instructions": instructions}
    request["response_format"] = response_format
    terms = {"priority": priority, "webhook": {"url": webhook} if webhook else None}
    with Remote(url, key) as farm, Display(as_json) as display:
        call = Call(
            farm=farm,
            display=display,
            output=output_of(out, _state_home()),
            sources=tuple(sources or ()),
            reading=Reading(split, ignore_unknown, input_format, None if "://" in out else Path(out)),
            wishes=Wishes(_given(request), _given(terms), name_template),
            overwrite=overwrite,
        )
        try:
            code = call.estimate() if dry_run else call.carry_out(retry_failed, no_wait)
        except KeyboardInterrupt:
            code = INTERRUPTED
    if code:
        raise typer.Exit(code)


submit.__doc__ = HELP


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _state_home() -> Path:
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "speechmill"
