"""`speechmill bench`: figures, never asserts. Everything that is compared runs in one call, one after the other."""

import json
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Measure.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Measure."""


@app.command("farm")
def farm(
    concurrency: Annotated[str, typer.Option(help="Closed-loop clients, comma separated.")] = "1,4,16",
    requests: Annotated[int, typer.Option(help="Requests a turn (at least two for each client).")] = 24,
    rounds: Annotated[int, typer.Option(help="Turns of every contender at every level.")] = 3,
    out: Annotated[Path | None, typer.Option(help="Also write the figures as JSON.")] = None,
    assignments: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Farm setting.")] = None,
) -> None:
    """The farm beside its own engine in-process and beside the wheel's voice behind plain FastAPI."""
    from speechmill.cli.bench.farm import compare

    figures = compare(_numbers(concurrency, "--concurrency"), requests, rounds, assignments or [])
    if out is not None:
        out.write_text(json.dumps(figures, indent=2) + "\n")


@app.command("voice")
def voice(
    rounds: Annotated[int, typer.Option(help="Times that every sentence is spoken.")] = 5,
    out: Annotated[Path | None, typer.Option(help="Also write the figures as JSON.")] = None,
) -> None:
    """The embedded voice's engine beside the wheel's own int8 graph, one thread, whole sentences."""
    from speechmill.cli.bench.voice import compare

    figures = compare(rounds)
    if out is not None:
        out.write_text(json.dumps(figures, indent=2) + "\n")


@app.command("listeners")
def listeners(
    count: Annotated[int, typer.Option(help="Listeners at once, half by HTTP, half by WebSocket.")] = 200,
    seconds: Annotated[float, typer.Option(help="Length of what each hears.")] = 20.0,
    out: Annotated[Path | None, typer.Option(help="Also write the figures as JSON.")] = None,
) -> None:
    """Many listeners at real-time pace on one API process, with an engine that costs nothing."""
    from speechmill.cli.bench.listeners import measure

    figures = measure(count, seconds)
    if out is not None:
        out.write_text(json.dumps(figures, indent=2) + "\n")


@app.command("incremental")
def incremental(
    words: Annotated[float, typer.Option(min=0.1, help="Words a second that are written.")] = 8.0,
    rounds: Annotated[int, typer.Option(min=1, help="Utterances of about 45 words in every way.")] = 10,
    pace: Annotated[float, typer.Option(min=0.0, help="Seconds that a second of audio takes to make.")] = 0.3,
    out: Annotated[Path | None, typer.Option(help="Also write the figures as JSON.")] = None,
    assignments: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Farm setting.")] = None,
) -> None:
    """A text that is still being written, spoken when it is complete, by sentences, and while it comes."""
    from speechmill.cli.bench.incremental import measure

    figures = measure(words, rounds, pace, assignments or [])
    if out is not None:
        out.write_text(json.dumps(figures, indent=2) + "\n")


@app.command("overload")
def overload(
    stage: Annotated[str, typer.Option(help="The one that is too slow: talker or codec.")] = "codec",
    seconds: Annotated[float, typer.Option(min=1, help="How long streams are asked for.")] = 60.0,
    factor: Annotated[float, typer.Option(min=0.1, help="Of what the stage can make.")] = 1.5,
    apart: Annotated[bool, typer.Option(help="Each stage in a process of its own.")] = False,
    out: Annotated[Path | None, typer.Option(help="Also write the figures as JSON.")] = None,
) -> None:
    """More streams than can be kept playing, served by arrival and by deadline: gaps and first audio."""
    from speechmill.cli.bench.overload import measure

    figures = measure(stage, seconds, factor, apart)
    if out is not None:
        out.write_text(json.dumps(figures, indent=2) + "\n")


@app.command("bulk")
def bulk(
    lines: Annotated[int, typer.Option(min=10, help="Sentences, one on each line.")] = 10_000,
    kill: Annotated[bool, typer.Option(help="Kill workers, Celery, API and Valkey once on the way.")] = True,
    out: Annotated[Path | None, typer.Option(help="Also write the figures as JSON.")] = None,
    assignments: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Farm setting.")] = None,
) -> None:
    """Many lines through `speechmill submit`, beside the same engine in-process; each comes out whole, once."""
    from speechmill.cli.bench.bulk import measure

    figures = measure(lines, kill, assignments or [])
    if out is not None:
        out.write_text(json.dumps(figures, indent=2) + "\n")


@app.command("model")
def model(
    family: Annotated[str, typer.Argument(help="Folder under models/, such as fish_speech.")],
    size: Annotated[str, typer.Option(help="Such as tiny; what there is is told for any other word.")] = "",
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:N.")] = "cpu",
    batches: Annotated[str, typer.Option(help="Sequences at once, comma separated.")] = "1,8,64",
    threads: Annotated[int, typer.Option(min=1, help="Of the CPU.")] = 1,
    out: Annotated[Path | None, typer.Option(help="Also write the figures as JSON.")] = None,
) -> None:
    """A family's stages with random weights, beside the floors that memory and arithmetic set."""
    from dataclasses import asdict

    from speechmill.infra.errors import BadInput
    from speechmill.models.measure import measure
    from speechmill.models.stage import CannotLoad, NoDevice

    figures, numbers = [], _numbers(batches, "--batches")
    try:
        for figure in measure(family, size, device, numbers, threads):
            print(figure, flush=True)
            figures.append(asdict(figure))
    except NoDevice as error:
        raise BadInput(f"{error}; --device cpu does without") from None
    except (LookupError, CannotLoad) as error:
        raise BadInput(str(error)) from None
    if out is not None:
        out.write_text(json.dumps(figures, indent=2) + "\n")


def _numbers(listed: str, option: str) -> list[int]:
    """Raises BadParameter for what is no list of them."""
    numbers = [part.strip() for part in listed.split(",")]
    if not all(number.isdecimal() and int(number) > 0 for number in numbers):
        raise typer.BadParameter("whole numbers above 0, comma separated, such as 1,8,64", param_hint=option)
    return list(map(int, numbers))
