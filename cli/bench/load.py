"""Closed-loop HTTP clients, and the figures that come out of any contender."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import httpx

from speechmill.cli.bench.texts import request_text

RATE = 24_000


@dataclass(frozen=True, slots=True)
class Sample:
    """One request."""

    first_s: float
    total_s: float
    audio_s: float


@dataclass(frozen=True, slots=True)
class Level:
    """All requests of one contender at one concurrency."""

    first_p50_ms: float
    first_p95_ms: float
    audio_per_s: float
    """Seconds of audio made per second of wall time."""


def percentile(values: list[float], share: float) -> float:
    """Nearest rank."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def summarise(samples: list[Sample], wall_s: float) -> Level:
    first = [sample.first_s * 1000 for sample in samples]
    audio = sum(sample.audio_s for sample in samples)
    return Level(percentile(first, 0.5), percentile(first, 0.95), audio / wall_s)


async def closed_loop(speak: Callable[[int], Awaitable[Sample]], clients: int, requests: int) -> Level:
    """Each client sends its next request when the last one is answered."""
    numbers = iter(range(requests))

    async def client() -> list[Sample]:
        return [await speak(number) for number in numbers]

    began = time.perf_counter()
    per_client = await asyncio.gather(*(client() for _ in range(clients)))
    wall_s = time.perf_counter() - began
    return summarise([sample for samples in per_client for sample in samples], wall_s)


async def speak_http(client: httpx.AsyncClient, url: str, number: int) -> Sample:
    """One raw stream of PCM."""
    body = {
        "input": request_text(number),
        "response_format": "pcm",
        "stream": True,
        "stream_format": "audio",
        "seed": 1,
    }
    began, first, size = time.perf_counter(), 0.0, 0
    async with client.stream("POST", url, json=body) as answer:
        answer.raise_for_status()
        async for part in answer.aiter_raw():
            first = first or time.perf_counter() - began
            size += len(part)
    return Sample(first, time.perf_counter() - began, size / 2 / RATE)


def measure_http(base: str, clients: int, requests: int) -> Level:
    """A server's figures at one concurrency, after a warm-up."""

    async def run() -> Level:
        limits = httpx.Limits(max_connections=clients, max_keepalive_connections=clients)
        async with httpx.AsyncClient(timeout=120, limits=limits, trust_env=False) as client:
            url = f"{base}/v1/audio/speech"
            await closed_loop(lambda number: speak_http(client, url, number), clients, clients)
            return await closed_loop(lambda number: speak_http(client, url, number), clients, requests)

    return asyncio.run(run())
