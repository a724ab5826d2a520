"""`speechmill bench listeners`: many who listen at real-time pace to one API process, half by HTTP, half by WebSocket.

The `tone` engine makes audio at the speed at which it is heard, so that the API alone is measured: how soon it still
answers others, what a listener costs in memory, whether anybody runs dry or is cut off, and whether one that takes
nothing hurts the rest.
"""

import asyncio
import json
import re
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import websockets
from rich.console import Console

from speechmill.cli.bench.farm import whole_farm
from speechmill.cli.bench.hearing import Heard, ask, by_http
from speechmill.cli.bench.load import percentile

MODEL = "Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice"
SENTENCE = "This is one more sentence of a rather long text. "
PROBE_S = 0.1
JOIN_S = 0.02
"""Between two listeners that join."""
_RSS = re.compile(rb"VmRSS:\s+(\d+) kB")


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one run."""

    listeners: int
    complete: int
    health_p50_ms: float
    health_p99_ms: float
    first_p50_ms: float
    first_p99_ms: float
    dry_p99_ms: float
    memory_per_listener_kb: float
    """Growth of the API process's resident memory at its height, for each listener."""


async def _by_websocket(port: int, text: str, heard: Heard) -> None:
    heard.begin()
    config = {"type": "session.config", "model": MODEL, "response_format": "pcm", "stream_audio": True}
    url = f"ws://127.0.0.1:{port}/v1/audio/speech/stream"
    async with websockets.connect(url, compression=None, ping_interval=None) as socket:
        for message in (config, {"type": "input.text", "text": text}, {"type": "input.done"}):
            await socket.send(json.dumps(message))
        async for came in socket:
            if isinstance(came, bytes):
                heard.take(len(came))
            elif json.loads(came)["type"] == "session.done":
                heard.complete = True
                return


async def _probe(port: int, taken_s: list[float]) -> None:
    """How soon `/health` answers, over and over."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while True:
        began = time.perf_counter()
        writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(len(b'{"status":"ok"}'))
        taken_s.append(time.perf_counter() - began)
        await asyncio.sleep(PROBE_S)


def _resident_kb(port: int) -> int:
    """Memory of the API process that serves this port."""
    for folder in Path("/proc").iterdir():
        try:
            is_api = (folder / "cmdline").read_bytes().endswith(b"main\0api\0")
            if is_api and f"SPEECHMILL_API__PORT={port}\0".encode() in (folder / "environ").read_bytes():
                found = _RSS.search((folder / "status").read_bytes())
                return int(found[1]) if found else 0
        except OSError:
            continue  # it has ended, or is somebody else's
    return 0


async def _watch_memory(port: int, heights: list[int]) -> None:
    while True:
        heights.append(_resident_kb(port))
        await asyncio.sleep(1.0)


async def _listen(port: int, count: int, seconds: float) -> Figures:
    text = SENTENCE * max(round(seconds / (0.06 * len(SENTENCE))), 1)
    raw = {"model": MODEL, "input": text, "response_format": "pcm", "stream_format": "audio"}
    body = json.dumps(raw).encode()
    await by_http(port, json.dumps({**raw, "input": SENTENCE}).encode(), Heard())
    before, health_s, heights = _resident_kb(port), list[float](), list[int]()
    beside = [asyncio.create_task(_probe(port, health_s)), asyncio.create_task(_watch_memory(port, heights))]
    _, idle = await ask(port, body, Heard())  # takes nothing of what comes
    heard, listening = [Heard() for _ in range(count)], list[asyncio.Task[None]]()
    for index, one in enumerate(heard):
        speak = by_http(port, body, one) if index % 2 else _by_websocket(port, text, one)
        listening.append(asyncio.create_task(speak))
        await asyncio.sleep(JOIN_S)
    await asyncio.gather(*listening, return_exceptions=True)
    for task in beside:
        task.cancel()
    idle.transport.abort()
    return Figures(
        listeners=count,
        complete=sum(one.complete for one in heard),
        health_p50_ms=percentile(health_s, 0.5) * 1000,
        health_p99_ms=percentile(health_s, 0.99) * 1000,
        first_p50_ms=percentile([one.first_s for one in heard], 0.5) * 1000,
        first_p99_ms=percentile([one.first_s for one in heard], 0.99) * 1000,
        dry_p99_ms=percentile([one.longest_gap_s for one in heard], 0.99) * 1000,
        memory_per_listener_kb=(max(heights) - before) / count,
    )


def measure(count: int, seconds: float) -> dict[str, Any]:
    """Run, print, answer the figures."""
    slots = count + 8
    # chunks of one size: those of a growing schedule would come late by as much as each is longer than the one before
    stages = {f"{MODEL}/{stage}": {"slots": slots, "live_chunks": [12]} for stage in ("talker", "codec")}
    sets = [f"models={json.dumps([MODEL])}", "test.stand_in=true", "test.pace=1.0", f"stages={json.dumps(stages)}"]
    sets += [f"limits.ws_per_key={count}"]
    with whole_farm(sets) as port:
        figures = asyncio.run(_listen(port, count, seconds))
    console = Console()
    console.print(f"{count} listeners and one that takes nothing, one API process, {seconds:g} s of audio each")
    console.print(f"complete {figures.complete}, first audio p50 {figures.first_p50_ms:.0f} ms")
    console.print(f"/health p50 {figures.health_p50_ms:.1f} ms, p99 {figures.health_p99_ms:.1f} ms")
    console.print(f"longest silence p99 {figures.dry_p99_ms:.0f} ms")
    console.print(f"{figures.memory_per_listener_kb:.0f} kB of the API's memory a listener")
    return asdict(figures)
