"""`speechmill bench incremental`: a text that is written word by word, spoken in each of the ways that a WebSocket has.

A tone stands for the model, at a pace of its own: what is measured is when text and audio may move on.
"""

import asyncio
import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table
from websockets.asyncio.client import ClientConnection, connect

from speechmill.cli.bench.farm import whole_farm
from speechmill.cli.bench.hearing import Heard
from speechmill.cli.bench.texts import request_text

MODEL = "Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice"
WAYS: dict[str, dict[str, Any]] = {
    "buffered": {"split_granularity": "none"},
    "by sentences": {"split_granularity": "sentence"},
    "incremental": {"incremental": True},
}


@dataclass(slots=True)
class Spoken(Heard):
    """One utterance; times count from its first word."""

    done_s: float = 0.0
    """Until all of the audio was there."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Medians over all utterances of one way."""

    first_ms: float
    done_ms: float
    dry_ms: float
    audio_s: float


async def _write(socket: ClientConnection, text: str, words_per_s: float) -> None:
    began = time.perf_counter()
    for number, word in enumerate(text.split()):
        await asyncio.sleep(max(began + number / words_per_s - time.perf_counter(), 0))
        await socket.send(json.dumps({"type": "input.text", "text": f"{word} "}))
    await socket.send('{"type": "input.done"}')


async def _speak(port: int, way: dict[str, Any], text: str, words_per_s: float) -> Spoken:
    config = {"model": MODEL, "seed": 1, "response_format": "pcm", "stream_audio": True, **way}
    url = f"ws://127.0.0.1:{port}/v1/audio/speech/stream"
    async with connect(url, compression=None, max_size=None) as socket:
        await socket.send(json.dumps({"type": "session.config", "ack": True, **config}))
        await socket.recv()
        heard = Spoken()
        heard.begin()
        writing = asyncio.create_task(_write(socket, text, words_per_s))
        async for came in socket:
            if isinstance(came, bytes):
                heard.take(len(came))
            elif (said := json.loads(came))["type"] == "error":
                raise RuntimeError(said["message"])
            elif said["type"] == "session.done":
                break
        heard.done_s = heard.waited_s
        await writing
        return heard


async def _rounds(port: int, words_per_s: float, rounds: int) -> dict[str, Figures]:
    """The ways take turns, so that a busy machine slows all."""
    taken: dict[str, list[Spoken]] = {name: [] for name in WAYS}
    await _speak(port, WAYS["buffered"], "Hello.", words_per_s)
    for number in range(rounds):
        for name, way in WAYS.items():
            taken[name].append(await _speak(port, way, request_text(number), words_per_s))
    return {name: _figures(heard) for name, heard in taken.items()}


def _figures(heard: Sequence[Spoken]) -> Figures:
    return Figures(
        first_ms=median(one.first_s for one in heard) * 1000,
        done_ms=median(one.done_s for one in heard) * 1000,
        dry_ms=median(one.longest_gap_s for one in heard) * 1000,
        audio_s=median(one.audio_s for one in heard),
    )


def measure(words_per_s: float, rounds: int, pace: float, assignments: Sequence[str]) -> dict[str, Any]:
    """Run, print, answer the figures. `pace`: seconds that a second of audio takes to make."""
    console = Console()
    console.print(f"{rounds} utterances in {len(WAYS)} ways")
    with whole_farm([f"models={json.dumps([MODEL])}", "test.stand_in=true", f"test.pace={pace}", *assignments]) as port:
        figures = asyncio.run(_rounds(port, words_per_s, rounds))
    table = Table("way", "first audio ms", "all audio ms", "longest silence ms", "audio s")
    for name, one in figures.items():
        table.add_row(name, f"{one.first_ms:.0f}", f"{one.done_ms:.0f}", f"{one.dry_ms:.0f}", f"{one.audio_s:.1f}")
    console.print(table)
    console.print(f"{words_per_s:g} words a second; a tone for a model, {pace:g} s for a second of audio; medians")
    console.print(f"{os.cpu_count()} CPUs")
    return {name: asdict(one) for name, one in figures.items()}
