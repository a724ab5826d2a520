"""`speechmill bench farm`: three contenders, side by side in one run."""

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import httpx
from rich.console import Console
from rich.table import Table

from speechmill.cli.bench.hops import measure_hops
from speechmill.cli.bench.load import Level, measure_http, percentile
from speechmill.configs.settings import Settings, load
from speechmill.infra.embedded import running_valkey
from speechmill.infra.errors import FarmError

MODEL = "hibari"
START_S = 60.0
NAMES = {
    "in-process": "(a) same engine in-process",
    "wheel": "(b) wheel's int8 voice, FastAPI threads",
    "farm": "(c) the farm",
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _await_ready(base: str, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{base}/health/ready", timeout=2, trust_env=False).status_code == 200:
                return
        time.sleep(0.1)
    raise FarmError(f"a contender did not start; run it by hand to see why: {process.args!r}")


@contextlib.contextmanager
def serving(command: list[str], port: int) -> Iterator[str]:
    """A server process; answers its base URL once it is ready."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            base = f"http://127.0.0.1:{port}"
            _await_ready(base, process)
            yield base
        finally:
            process.terminate()
            process.wait(60)


def _in_process(levels: Sequence[int], requests: int, settings: Settings) -> dict[int, Level]:
    """In a process of its own: its memory and threads are not the load generator's."""
    import json

    code = (
        "import json, sys; from dataclasses import asdict;"
        "from speechmill.cli.bench.inprocess import InProcess; from speechmill.configs.settings import load;"
        f"contender = InProcess(load(assignments=sys.argv[1:]), {MODEL!r});"
        f"print(json.dumps([asdict(contender.measure(n, max({requests}, 2 * n))) for n in {list(levels)}]))"
    )
    assignments = [f"stages={json.dumps({k: v.model_dump(exclude_none=True) for k, v in settings.stages.items()})}"]
    done = subprocess.run([sys.executable, "-c", code, *assignments], capture_output=True, check=True)
    return dict(zip(levels, (Level(**level) for level in json.loads(done.stdout)), strict=True))


def _wheel(levels: Sequence[int], requests: int) -> dict[int, Level]:
    port = free_port()
    with serving([sys.executable, "-m", "speechmill.cli.bench.wheel_server", str(port)], port) as base:
        return {clients: measure_http(base, clients, max(requests, 2 * clients)) for clients in levels}


def _farm(levels: Sequence[int], requests: int, assignments: Sequence[str]) -> tuple[dict[int, Level], list[float]]:
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="speechmill-bench-") as folder:
        sets = [part for assignment in assignments for part in ("--set", assignment)]
        command = [sys.executable, "-m", "speechmill.cli.main", "up", "--port", str(port), "--data-dir", folder, *sets]
        with serving(command, port) as base:
            hops = measure_hops(running_valkey(Path(folder) / "valkey"), "bench")
            return {clients: measure_http(base, clients, max(requests, 2 * clients)) for clients in levels}, hops


def compare(levels: Sequence[int], requests: int, rounds: int, assignments: Sequence[str]) -> dict[str, Any]:
    """Measure, print, answer the figures. Each figure is the median over the rounds."""
    settings = load(assignments=assignments)
    console = Console()
    taken: dict[str, list[dict[int, Level]]] = {name: [] for name in NAMES}
    hops: list[float] = []
    for number in range(rounds):
        console.print(f"round {number + 1} of {rounds}: in-process, wheel, farm")
        taken["in-process"].append(_in_process(levels, requests, settings))
        taken["wheel"].append(_wheel(levels, requests))
        farm, fresh_hops = _farm(levels, requests, assignments)
        taken["farm"].append(farm)
        hops += fresh_hops
    figures = {name: {n: _median([one[n] for one in runs]) for n in levels} for name, runs in taken.items()}
    console.print(_table(levels, figures))
    hop = {"p50_ms": percentile(hops, 0.5), "p99_ms": percentile(hops, 0.99)}
    console.print(f"hop through Redis, process to process: p50 {hop['p50_ms']:.2f} ms, p99 {hop['p99_ms']:.2f} ms")
    console.print(f"{os.cpu_count()} CPUs, {requests} requests of about 15 s of audio at each level, {rounds} rounds")
    return {"levels": {name: {n: asdict(v) for n, v in by.items()} for name, by in figures.items()}, "hop": hop}


def _median(levels: list[Level]) -> Level:
    fields = [asdict(level) for level in levels]
    return Level(**{name: median(one[name] for one in fields) for name in fields[0]})


def _table(levels: Sequence[int], figures: dict[str, dict[int, Level]]) -> Table:
    table = Table("contender", "clients", "first p50 ms", "first p95 ms", "audio s/s", "÷ (a)")
    for clients in levels:
        base = figures["in-process"][clients].audio_per_s
        for name, label in NAMES.items():
            level = figures[name][clients]
            cells = (f"{level.first_p50_ms:.1f}", f"{level.first_p95_ms:.1f}", f"{level.audio_per_s:.1f}")
            table.add_row(label, str(clients), *cells, f"{level.audio_per_s / base:.2f}")
        table.add_section()
    return table
