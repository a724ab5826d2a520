"""`--list`: what is in a book, and how long it would be; nothing is spoken."""

from collections.abc import Sequence
from typing import Any

from speechmill.cli.book.script import Scene
from speechmill.cli.remote import Remote
from speechmill.cli.submit.estimate import CHARS_PER_S, recent_rate


def listing(scenes: Sequence[Scene], speed: float, farm: Remote) -> tuple[dict[str, Any], str]:
    """The same as an object and as lines. The farm is asked how fast it has been lately, where there is one."""
    rate = recent_rate(farm)
    chapters = [_chapter(scene, speed) for scene in scenes]
    audio_s = sum(one["audio_s"] for one in chapters)
    told = {
        "chapters": chapters,
        "characters": sum(one["characters"] for one in chapters),
        "audio_s": round(audio_s, 1),
        "time_s": round(audio_s / rate, 1) if rate else None,
    }
    lines = [_line(str(one["number"]), one["characters"], one["audio_s"], one["title"]) for one in chapters]
    work = f"; the farm would take about {_minutes(audio_s / rate)}" if rate else ""
    total = f"about {_minutes(audio_s)} of audio ({CHARS_PER_S:.0f} characters a second){work}"
    return told, "\n".join([*lines, _line("", told["characters"], audio_s, total)])


def _chapter(scene: Scene, speed: float) -> dict[str, Any]:
    audio_s = scene.chars / CHARS_PER_S / speed + sum(piece.pause_s for piece in scene.pieces)
    return {"number": scene.number, "title": scene.title, "characters": scene.chars, "audio_s": round(audio_s, 1)}


def _line(number: str, chars: int, audio_s: float, text: str) -> str:
    return f"{number:>4}  {chars:>8}  {_minutes(audio_s):>9}  {text}"


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.1f} min"
