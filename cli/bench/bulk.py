"""`speechmill bench bulk`: many lines through `speechmill submit`, beside the same engine in-process, in one run.

On the way each process of the farm is killed once, and somebody asks for single sentences all the time.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import wave
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import redis
from rich.console import Console
from rich.table import Table

from speechmill.cli.bench.farm import in_process, whole_farm
from speechmill.cli.bench.load import percentile
from speechmill.cli.bench.processes import descendants
from speechmill.cli.bench.texts import line_text
from speechmill.configs.settings import load
from speechmill.infra.embedded import running_valkey
from speechmill.infra.errors import FarmError

VICTIMS = {"workers": "main worker", "celery": "main celery worker", "api": "main api", "valkey": "valkey-server"}
"""Killed in this order, at equal distances; each by a part of its command line."""
ALONE = 512
"""Lines that the engine speaks alone, before and after."""
SLOTS = 128
PROBE_S = 3.0
LOOK_S = 1.0
PROBES = 10
PROBE = "Somebody asks for one sentence while all the others wait."


@dataclass(frozen=True, slots=True)
class Found:
    """What a run came to. `first_…`: until the first audio of the probe's sentence; `alone`: with nobody else there."""

    lines: int
    audio_s: float
    took_s: float
    peak_valkey_mb: float
    killed: list[str]
    first_alone_ms: float
    whole_alone_ms: float
    """Until all of it."""
    first_p50_ms: float
    first_p95_ms: float


def measure(lines: int, kill: bool, assignments: Sequence[str]) -> dict[str, Any]:
    """Run, check, print, answer the figures. Raises FarmError where a line is missing, doubled or not whole."""
    with tempfile.TemporaryDirectory(prefix="speechmill-bench-") as name, in_process(
        load(assignments=assignments), "bulk"
    ) as alone:
        folder = Path(name)
        before = alone(SLOTS, ALONE).audio_per_s
        found = _run(folder, lines, kill, assignments)
        engine = (before + alone(SLOTS, ALONE).audio_per_s) / 2
    ratio = found.audio_s / found.took_s / engine
    _show(found, engine, ratio)
    return {**asdict(found), "alone_audio_per_s": engine, "ratio": ratio}


def _run(folder: Path, lines: int, kill: bool, assignments: Sequence[str]) -> Found:
    data, source = folder / "data", folder / "lines.txt"
    source.write_text("".join(f"{line_text(number)}\n" for number in range(lines)), encoding="utf-8")
    with whole_farm(assignments, str(data)) as port:
        base = f"http://127.0.0.1:{port}"
        first_alone, whole_alone = zip(*(_first_and_whole(base) for _ in range(PROBES)), strict=True)
        watch = _Watch(base, running_valkey(data / "valkey"))
        began = time.monotonic()
        with watch.watching():
            killed = _submit(base, source, folder / "out", lines, kill)
        took_s = time.monotonic() - began
    audio_s = check(folder / "out", lines)
    return Found(
        lines=lines,
        audio_s=audio_s,
        took_s=took_s,
        peak_valkey_mb=watch.peak_bytes / 2**20,
        killed=killed,
        first_alone_ms=1000 * median(first_alone),
        whole_alone_ms=1000 * median(whole_alone),
        first_p50_ms=1000 * percentile(watch.first_s, 0.5),
        first_p95_ms=1000 * percentile(watch.first_s, 0.95),
    )


def _first_and_whole(base: str) -> tuple[float, float]:
    """Seconds until the first audio of a sentence, and until all of it. Raises httpx.HTTPError."""
    body = {"input": PROBE, "response_format": "pcm", "stream": True, "stream_format": "audio", "seed": 1}
    began, first = time.monotonic(), 0.0
    with httpx.stream("POST", f"{base}/v1/audio/speech", json=body, timeout=60, trust_env=False) as answer:
        answer.raise_for_status()
        for _ in answer.iter_raw():
            first = first or time.monotonic() - began
    return first, time.monotonic() - began


class _Watch:
    """Asks for a sentence again and again, and looks at the memory of Valkey, while something else is going on."""

    def __init__(self, base: str, valkey_url: str) -> None:
        self.first_s: list[float] = []
        self.peak_bytes = 0
        self._base, self._server = base, redis.Redis.from_url(valkey_url)
        self._over = threading.Event()

    @contextmanager
    def watching(self) -> Iterator[None]:
        steps = ((self._ask, PROBE_S), (self._look, LOOK_S))
        threads = [threading.Thread(target=self._repeat, args=step) for step in steps]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in threads:
                thread.join()

    def _repeat(self, step: Any, pause_s: float) -> None:
        while not self._over.wait(pause_s):
            with suppress(httpx.HTTPError, redis.RedisError):  # what was asked is being killed
                step()

    def _ask(self) -> None:
        self.first_s.append(_first_and_whole(self._base)[0])

    def _look(self) -> None:
        self.peak_bytes = max(self.peak_bytes, int(self._server.info("memory")["used_memory"]))


def _submit(base: str, source: Path, out: Path, lines: int, kill: bool) -> list[str]:
    """Everything has come when this returns. Answers who was killed meanwhile."""
    command = [sys.executable, "-m", "speechmill.cli.main", "submit", str(source), "--out", str(out)]
    killed: list[str] = []
    left = list(VICTIMS) if kill else []
    with subprocess.Popen(
        [*command, "--format", "wav", "--url", base, "--json"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for done, _ in enumerate(process.stdout, 1):
            if left and done >= (len(killed) + 1) * lines // (len(VICTIMS) + 1):
                _kill(left[0])
                killed.append(left.pop(0))
    if process.returncode:
        raise FarmError(f"speechmill submit ended with {process.returncode}")
    return killed


def _kill(victim: str) -> None:
    """Of the bench's own farm, which starts it again."""
    for pid, command in descendants(os.getpid()).items():
        if VICTIMS[victim] in command:
            os.kill(pid, signal.SIGKILL)


def check(out: Path, lines: int) -> float:
    """Seconds of audio of a complete output. Raises FarmError for what is missing, doubled or not whole."""
    told = [json.loads(line) for line in (out / "manifest.jsonl").read_text(encoding="utf-8").splitlines()]
    if sorted(one["index"] for one in told) != list(range(1, lines + 1)):
        raise FarmError(f"the manifest tells of {len(told)} lines and not of each of {lines} once")
    audio_s = 0.0
    for one in told:
        with wave.open(str(out / one["file"])) as file:
            frames = file.getnframes()
            if len(file.readframes(frames)) != frames * file.getsampwidth() * file.getnchannels():
                raise FarmError(f"{one['file']} is cut off")
            audio_s += frames / file.getframerate()
    return audio_s


def _show(found: Found, engine: float, ratio: float) -> None:
    table = Table("lines", "audio s", "took s", "audio s/s", "÷ in-process", "Valkey peak MB", "killed")
    table.add_row(
        str(found.lines),
        f"{found.audio_s:.0f}",
        f"{found.took_s:.0f}",
        f"{found.audio_s / found.took_s:.1f}",
        f"{ratio:.2f}",
        f"{found.peak_valkey_mb:.0f}",
        ", ".join(found.killed) or "nobody",
    )
    console = Console()
    console.print(table)
    console.print(
        f"first audio of a sentence asked for meanwhile: p50 {found.first_p50_ms:.0f} ms,"
        f" p95 {found.first_p95_ms:.0f} ms; alone {found.first_alone_ms:.0f} ms,"
        f" all of it {found.whole_alone_ms:.0f} ms"
    )
    console.print(f"{os.cpu_count()} CPUs; the engine alone speaks {engine:.1f} s of audio a second")
