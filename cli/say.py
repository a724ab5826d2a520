"""`speechmill say`: speak a text through a running farm."""

import base64
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from speechmill.cli.remote import HERE, AsJson, Key, Refused, Remote, Url
from speechmill.cli.tables import print_json

if TYPE_CHECKING:
    from speechmill.infra.encode import AudioFormat

SPEAKING_S = 600.0
"""Silence within one answer that is taken for the end of it."""
PLAYERS = (
    ("ffplay", "-autoexit", "-nodisp", "-loglevel", "error"),
    ("pw-play",),
    ("paplay",),
    ("aplay", "-q"),
    ("play", "-q"),
    ("afplay",),
)


@dataclass(frozen=True, slots=True)
class Spoken:
    audio_s: float
    first_s: float
    total_s: float


def fetch(farm: Remote, body: dict[str, Any], out: Path, progress: Any = None) -> Spoken:
    """Stream PCM, show progress, write a complete file of the kind that its ending names.

    Raises BadInput for an unknown ending, OSError for a file that cannot be written, Unreachable and Refused.
    """
    import httpx

    from speechmill.infra.encode import EXTENSIONS, complete_file
    from speechmill.infra.errors import BadInput

    endings: dict[str, AudioFormat] = {extension: name for name, extension in EXTENSIONS.items()} | {"opus": "opus"}
    audio_format = endings.get(out.suffix.lower().lstrip("."))
    if audio_format is None:
        raise BadInput(f"{out}: the file must end in one of .{', .'.join(endings)}")
    if not out.absolute().parent.is_dir():
        raise BadInput(f"{out}: there is no folder {out.absolute().parent}")
    began, first, parts = time.monotonic(), 0.0, []
    request = {**body, "response_format": "pcm", "stream_format": "audio"}
    try:
        with farm.http.stream("POST", f"{farm.base}/v1/audio/speech", json=request, timeout=SPEAKING_S) as answer:
            if answer.status_code != 200:
                answer.read()
                raise Refused(answer, farm.base)
            rate, channels = int(answer.headers["x-sample-rate"]), int(answer.headers["x-channels"])
            for part in answer.iter_bytes():
                first = first or time.monotonic() - began
                parts.append(part)
                if progress is not None:
                    progress(len(part) / (2 * channels * rate))
    except httpx.HTTPError as error:
        raise farm.unreachable(error) from error
    with out.open("wb+") as file:
        frames = complete_file(audio_format, parts, rate, channels, file)
    return Spoken(frames / rate, first, time.monotonic() - began)


def say(
    text: Annotated[str, typer.Argument(help="What to say; `-` reads standard input.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="File to write: .wav .mp3 .flac .ogg .opus .aac .pcm")
    ] = Path("speech.wav"),
    voice: Annotated[str, typer.Option(help="Voice name.")] = "default",
    model: Annotated[str | None, typer.Option(help="Model id; needed where several are served.")] = None,
    speed: Annotated[float, typer.Option(help="Tempo.")] = 1.0,
    seed: Annotated[int | None, typer.Option(help="Same seed, same audio.")] = None,
    language: Annotated[str | None, typer.Option(help="Of the text, for models that ask.")] = None,
    instructions: Annotated[str | None, typer.Option(help="How to speak, or what the voice is like.")] = None,
    ref_audio: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Somebody to sound like, for models that clone.")
    ] = None,
    ref_text: Annotated[str | None, typer.Option(help="What is said in it.")] = None,
    play: Annotated[bool, typer.Option("--play", help="Play it afterwards.")] = False,
    url: Url = HERE,
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """Speak TEXT through a running farm into a file."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    body: dict[str, Any] = {"input": sys.stdin.read() if text == "-" else text, "voice": voice, "speed": speed}
    wanted = {"model": model, "seed": seed, "language": language, "instructions": instructions, "ref_text": ref_text}
    body |= {name: value for name, value in wanted.items() if value is not None}
    body |= {"ref_audio": data_url(ref_audio)} if ref_audio is not None else {}
    columns = (SpinnerColumn(), TextColumn("{task.completed:.1f} s of audio"), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None)
        with Remote(url, key) as farm:
            spoken = fetch(farm, body, out, lambda seconds: bar.advance(task, seconds))
    _tell(out, spoken, as_json)
    if play:
        _play(out)


def data_url(recording: Path) -> str:
    """What the file holds is looked into by the farm, whatever its ending says."""
    return f"data:audio/wav;base64,{base64.b64encode(recording.read_bytes()).decode()}"


def _tell(out: Path, spoken: Spoken, as_json: bool) -> None:
    if as_json:
        print_json({"file": str(out), **{name: round(value, 3) for name, value in asdict(spoken).items()}})
        return
    ratio = spoken.audio_s / spoken.total_s
    print(f"{out}: {spoken.audio_s:.2f} s, first audio after {spoken.first_s * 1000:.0f} ms, {ratio:.0f} × real time")


def _play(out: Path) -> None:
    from speechmill.cli.common import fail

    for player in PLAYERS:
        if shutil.which(player[0]):
            if subprocess.run([*player, str(out)], check=False).returncode:
                fail(f"{player[0]} could not play {out}")
            return
    fail(f"no player found; looked for {', '.join(player[0] for player in PLAYERS)}")
