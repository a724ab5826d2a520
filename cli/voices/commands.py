"""`speechmill voices`: voices of a farm, and those of one's own."""

from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from speechmill.cli.remote import HERE, AsJson, Key, Remote, Url
from speechmill.cli.say import say
from speechmill.cli.tables import Columns, moment, print_json, show_deleted, show_table

app = typer.Typer(help="Voices: list, add, delete, hear; compute and blend them beforehand.", no_args_is_help=True)
VOICES = "/v1/audio/voices"
PAGE = 1000
COLUMNS: Columns = {
    "name": lambda voice: voice["name"],
    "id": lambda voice: voice["id"],
    "source": lambda voice: voice["source"],
    "models": lambda voice: ", ".join(voice["models"]),
    "languages": lambda voice: ", ".join(voice["languages"]),
    "created": lambda voice: moment(voice["created_at"]),
}


@app.command("list")
def list_all(
    model: Annotated[str | None, typer.Option(help="Only voices that it can speak with.")] = None,
    url: Url = HERE,
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """Built-in voices and the project's own."""
    with Remote(url, key) as farm:
        params: dict[str, Any] = {"limit": PAGE} | ({"model": model} if model else {})
        show_table(farm.pages(VOICES, params), COLUMNS, as_json)


@app.command("add")
def add(
    name: Annotated[str, typer.Argument(help="What to call it; a voice of that name is replaced.")],
    recording: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="1 to 30 seconds of one speaker.")],
    consent: Annotated[str, typer.Option(help="Who agreed to it, or the id of a recorded consent.")],
    ref_text: Annotated[
        str, typer.Option(help="What is said in the recording; models that need it take over the timbre alone without.")
    ] = "",
    description: Annotated[str, typer.Option(help="Of the speaker.")] = "",
    model: Annotated[str, typer.Option(help="For this model family only.")] = "",
    url: Url = HERE,
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """Upload a RECORDING as a voice, for models that clone."""
    told = {"name": name, "consent": consent, "ref_text": ref_text, "speaker_description": description, "model": model}
    with Remote(url, key) as farm, recording.open("rb") as file:
        fields = {part: value for part, value in told.items() if value}
        made = farm.told("POST", VOICES, data=fields, files={"audio_sample": (recording.name, file)})
    if as_json:
        print_json(made)
    else:
        print(f"{made['id']}\t{made['name']}")


@app.command("rm")
def remove(
    names: Annotated[list[str], typer.Argument(metavar="NAME…", help="Names or ids of voices of your own.")],
    url: Url = HERE,
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """Delete voices, with their recordings."""
    with Remote(url, key) as farm:
        for name in names:
            told = farm.told("DELETE", f"{VOICES}/{quote(name, safe='')}")
            show_deleted(name, told, as_json)


@app.command("say")
def say_with(
    name: Annotated[str, typer.Argument(help="Name or id of a voice.")],
    text: Annotated[str, typer.Argument(help="What to say; `-` reads standard input.")] = "This is how I sound.",
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write.")] = Path("speech.wav"),
    model: Annotated[str | None, typer.Option(help="Model id; needed where several are served.")] = None,
    play: Annotated[bool, typer.Option("--play", help="Play it afterwards.")] = False,
    url: Url = HERE,
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """Hear a voice: as `speechmill say --voice NAME`."""
    say(text, out=out, voice=name, model=model, play=play, url=url, key=key, as_json=as_json)


@app.command("precompute")
def precompute_voices(
    recordings: Annotated[
        list[Path],
        typer.Argument(
            metavar="RECORDING…",
            exists=True,
            dir_okay=False,
            help="1 to 30 s of one speaker each: NAME.wav becomes voice NAME, NAME.txt beside it holds its words.",
        ),
    ],
    model: Annotated[str, typer.Option(help="Id of a model of the HF cache, or the folder of its checkpoint.")],
    out: Annotated[Path, typer.Option("--out", "-o", file_okay=False, help="Folder of voices; it may have some.")],
    mode: Annotated[str, typer.Option(help="icl: the recording is continued, xvec: timbre alone. (icl)")] = "",
    ref_text: Annotated[str, typer.Option(help="What is said, in place of a text file.")] = "",
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:N.")] = "cpu",
    as_json: AsJson = False,
) -> None:
    """Compute voices of a cloning model from recordings, without a farm.

    A farm serves the folder with the setting voices.precomputed, vLLM-Omni loads it as well.
    """
    from speechmill.cli.voices.precompute import precompute

    _tell(precompute(recordings, model, out, mode, ref_text, device), as_json)


@app.command("blend")
def blend_voices(
    folder: Annotated[Path, typer.Argument(exists=True, file_okay=False, help="Of precomputed voices.")],
    first: Annotated[str, typer.Argument(help="Name of a voice in it.")],
    second: Annotated[str, typer.Argument(help="Name of another.")],
    name: Annotated[str, typer.Option(help="What to call the voice between them.")],
    weight: Annotated[float, typer.Option(min=0, max=1, help="0 is the first, 1 the second.")] = 0.5,
    arc: Annotated[bool, typer.Option("--slerp", help="Along the arc between them, not the straight line.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make a voice between two precomputed ones: it has a timbre, and goes on from no recording."""
    from speechmill.cli.voices.blend import blend

    _tell({name: blend(folder, first, second, name, weight, arc)}, as_json)


def _tell(made: dict[str, Path], as_json: bool) -> None:
    """Names of voices and their files."""
    if as_json:
        print_json([{"name": name, "file": str(file)} for name, file in made.items()])
    else:
        print("\n".join(map(str, made.values())))
