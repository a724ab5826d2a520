"""`speechmill say`: speak a text through a running farm."""

import base64
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from speechmill.cli.remote import HERE, AsJson, Key, Refused, Remote, Url
from speechmill.cli.tables import print_json
from speechmill.infra.errors import BadInput, FarmError

if TYPE_CHECKING:
    import httpx

    from speechmill.infra.encode import AudioFormat

_DATA = "data: "
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
    finish_reason: str
    """`stop`, or `length` where a limit cut the speech off."""


def fetch(farm: Remote, body: dict[str, Any], out: Path, progress: Any = None) -> Spoken:
    """Stream PCM, show progress, write a complete file of the kind that its ending names.

    Raises BadInput for an unknown ending, OSError for a file that cannot be written, Unreachable and Refused, and
    FarmError for what went wrong on the way.
    """
    import httpx

    from speechmill.infra.encode import complete_file

    audio_format = _format_of(out)
    began, first, parts, reason = time.monotonic(), 0.0, [], ""
    request = {**body, "response_format": "pcm", "stream_format": "sse"}
    try:
        with farm.http.stream("POST", f"{farm.base}/v1/audio/speech", json=request, timeout=SPEAKING_S) as answer:
            if answer.status_code != 200:
                answer.read()
                raise Refused(answer, farm.base)
            rate, channels = int(answer.headers["x-sample-rate"]), int(answer.headers["x-channels"])
            for event in _events(answer):
                if event["type"] == "speech.audio.done":
                    reason = event["finish_reason"]
                elif event["type"] == "speech.audio.delta":
                    first = first or time.monotonic() - began
                    parts.append(base64.b64decode(event["audio"]))
                    if progress is not None:
                        progress(len(parts[-1]) / (2 * channels * rate))
    except httpx.HTTPError as error:
        raise farm.unreachable(error) from error
    if not reason:
        raise FarmError(f"{farm.base} broke off before the end of the speech")
    with out.open("wb+") as file:
        frames = complete_file(audio_format, parts, rate, channels, file)
    return Spoken(frames / rate, first, time.monotonic() - began, reason)


def _format_of(out: Path) -> "AudioFormat":
    """Raises BadInput for a file that cannot be written, or is of no known kind."""
    from speechmill.infra.encode import EXTENSIONS

    endings: dict[str, AudioFormat] = {extension: name for name, extension in EXTENSIONS.items()} | {"opus": "opus"}
    audio_format = endings.get(out.suffix.lower().lstrip("."))
    if audio_format is None:
        raise BadInput(f"{out}: the file must end in one of .{', .'.join(endings)}")
    if not out.absolute().parent.is_dir():
        raise BadInput(f"{out}: there is no folder {out.absolute().parent}")
    return audio_format


def _events(answer: "httpx.Response") -> Iterator[dict[str, Any]]:
    """Raises FarmError for one that says that speech has failed."""
    for line in answer.iter_lines():
        if line.startswith(_DATA):
            event = json.loads(line.removeprefix(_DATA))
            if event["type"] == "speech.audio.error":
                raise FarmError(event["error"]["message"])
            yield event


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
    x_vector_only: Annotated[
        bool, typer.Option("--x-vector-only", help="Take over the timbre of --ref-audio alone, which needs no words.")
    ] = False,
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
    body |= {"x_vector_only_mode": True} if x_vector_only else {}
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
        times = {name: round(value, 3) for name, value in asdict(spoken).items() if name != "finish_reason"}
        print_json({"file": str(out), **times, "finish_reason": spoken.finish_reason})
        return
    ratio = spoken.audio_s / spoken.total_s
    speed = f"{ratio:.0f}" if ratio >= 10 else f"{ratio:.1f}"
    print(f"{out}: {spoken.audio_s:.2f} s, first audio after {spoken.first_s * 1000:.0f} ms, {speed} × real time")
    if spoken.finish_reason == "length":
        sys.stderr.write("speechmill: a limit cut the speech off before its end\n")


def _play(out: Path) -> None:
    from speechmill.cli.common import fail

    for player in PLAYERS:
        if shutil.which(player[0]):
            if subprocess.run([*player, str(out)], check=False).returncode:
                fail(f"{player[0]} could not play {out}")
            return
    fail(f"no player found; looked for {', '.join(player[0] for player in PLAYERS)}")
