"""`speechmill bench farm`: three contenders, side by side in one run."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
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
Measure = Callable[[int, int], Level]
"""(clients, requests) -> figures."""
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


@contextlib.contextmanager
def whole_farm(assignments: Iterable[str], folder: str | None = None) -> Iterator[int]:
    """`speechmill up` with these settings; answers its port. Its data lie in `folder`, else they go with it."""
    port = free_port()
    sets = [part for assignment in assignments for part in ("--set", assignment)]
    with contextlib.ExitStack() as stack:
        data = folder or stack.enter_context(tempfile.TemporaryDirectory(prefix="speechmill-bench-"))
        command = [sys.executable, "-m", "speechmill.cli.main", "up", "--port", str(port), "--data-dir", data, *sets]
        stack.enter_context(serving(command, port))
        yield port


@contextlib.contextmanager
def in_process(settings: Settings, kind: str = "live") -> Iterator[Measure]:
    """`live` or `bulk`, in a process of its own: its memory and threads are not the load generator's."""
    stages = {name: override.model_dump(exclude_none=True) for name, override in settings.stages.items()}
    command = [sys.executable, "-m", "speechmill.cli.bench.inprocess", MODEL, kind, f"stages={json.dumps(stages)}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        source, sink = process.stdout, process.stdin

        def measure(clients: int, requests: int) -> Level:
            sink.write(f"{clients} {requests}\n")
            sink.flush()
            return Level(**json.loads(source.readline()))

        yield measure
        sink.close()


@contextlib.contextmanager
def _wheel() -> Iterator[Measure]:
    port = free_port()
    with serving([sys.executable, "-m", "speechmill.cli.bench.wheel_server", str(port)], port) as base:
        yield lambda clients, requests: measure_http(base, clients, requests)


@contextlib.contextmanager
def _farm(folder: str, assignments: Sequence[str]) -> Iterator[Measure]:
    with whole_farm(assignments, folder) as port:
        yield lambda clients, requests: measure_http(f"http://127.0.0.1:{port}", clients, requests)


def compare(levels: Sequence[int], requests: int, rounds: int, assignments: Sequence[str]) -> dict[str, Any]:
    """Measure, print, answer the figures: medians over the rounds, ratios taken within each round.

    All contenders are up all the time and take turns at every level, so that a machine whose speed drifts slows all.
    """
    console = Console()
    taken: dict[str, dict[int, list[Level]]] = {name: {n: [] for n in levels} for name in NAMES}
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="speechmill-bench-"))
        contenders = {
            "in-process": stack.enter_context(in_process(load(assignments=assignments))),
            "wheel": stack.enter_context(_wheel()),
            "farm": stack.enter_context(_farm(folder, assignments)),
        }
        hops = measure_hops(running_valkey(Path(folder) / "valkey"), "bench")
        for number in range(rounds):
            console.print(f"round {number + 1} of {rounds}")
            for clients in levels:
                for name, measure in contenders.items():
                    taken[name][clients].append(measure(clients, max(requests, 2 * clients)))
    console.print(_table(levels, taken))
    hop = {"p50_ms": percentile(hops, 0.5), "p99_ms": percentile(hops, 0.99)}
    console.print(f"hop through Redis, process to process: p50 {hop['p50_ms']:.2f} ms, p99 {hop['p99_ms']:.2f} ms")
    console.print(f"{os.cpu_count()} CPUs, {requests} requests of about 15 s of audio a turn, {rounds} rounds")
    return {"levels": {name: {n: asdict(_median(v)) for n, v in by.items()} for name, by in taken.items()}, "hop": hop}


def _median(levels: list[Level]) -> Level:
    fields = [asdict(level) for level in levels]
    return Level(**{name: median(one[name] for one in fields) for name in fields[0]})


def _table(levels: Sequence[int], taken: dict[str, dict[int, list[Level]]]) -> Table:
    table = Table("contender", "clients", "first p50 ms", "first p95 ms", "audio s/s", "÷ (a)")
    for clients in levels:
        base = [level.audio_per_s for level in taken["in-process"][clients]]
        for name, label in NAMES.items():
            level = _median(taken[name][clients])
            cells = (f"{level.first_p50_ms:.1f}", f"{level.first_p95_ms:.1f}", f"{level.audio_per_s:.1f}")
            ratio = median(one.audio_per_s / other for one, other in zip(taken[name][clients], base, strict=True))
            table.add_row(label, str(clients), *cells, f"{ratio:.2f}")
        table.add_section()
    return table
