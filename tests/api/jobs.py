"""The callers' part in tests of jobs, and the workers': nobody else is there to play it."""

import json
import zlib
from typing import Any

import httpx

from speechmill.infra.jobs import read_record
from speechmill.infra.keys import LogRef, new_id, out_log
from speechmill.infra.protocol import (
    Append,
    advance,
    claim,
    commit,
    emit,
    fence,
)

from .test_farm import Bench

JOBS = "/v1/audio/jobs"
PCM = bytes(range(256)) * 100
FRAMES = len(PCM) // 2
FAILURE = '{"code": "generation_failed", "message": "it went wrong"}'
TOKEN = "1:test"  # noqa: S105  the claim that may write


async def ask(bench: Bench, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
    transport = httpx.ASGITransport(bench.app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://test", timeout=30, verify=False) as client:
        return await client.request(method, path, json=body, headers=headers)


async def create(bench: Bench, text: str = "Hello there.", **fields: Any) -> str:
    request = {"input": text, "seed": 3, **fields.pop("request", {})}
    answer = await ask(bench, "POST", JOBS, {"request": request, **fields})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


def error_of(answer: httpx.Response) -> tuple[int, str, str | None]:
    error = answer.json()["error"]
    return answer.status_code, error["code"], error["param"]


def open_log(bench: Bench, job: str) -> LogRef:
    out = out_log(job, 1)
    bench.client.run(fence(out, TOKEN, -1, 600, "{}"))
    return out


def write(bench: Bench, out: LogRef, start: int, pcm: bytes) -> int:
    end = start + len(pcm) // 2
    assert bench.client.run(emit(out, TOKEN, Append(start, end, zlib.crc32(pcm), pcm), 600)) == "ok"
    return end


def start(bench: Bench, job: str) -> None:
    """A worker is at the job."""
    claimed = bench.client.run(claim("hibari/prosody", "w", new_id("n"), 60_000, 0))
    assert not isinstance(claimed, str)
    assert claimed.task.job == job


def stored_result(bench: Bench, job: str, body: bytes, audio_format: str, frames: int) -> dict[str, Any]:
    """Of a job whose audio, mono at 24 kHz, was just put into the store."""
    record = read_record(bench.client, job)
    assert record is not None
    key = f"audio/2026/12/01/{job}/1-1-n.{audio_format}"
    stored = bench.objects.put_once(key, body, "audio/pcm")
    return {
        "key": key,
        "format": audio_format,
        "media_type": f"audio/{audio_format}",
        "bytes": len(body),
        "sha256": stored.sha256,
        "sample_rate": 24_000,
        "channels": 1,
        "frames": frames,
        "duration_ms": round(frames / 24),
        "seed": record.request.seed,
        "word_timestamps": None,
    }


def succeed(bench: Bench, job: str, audio_format: str = "pcm", body: bytes = PCM) -> None:
    """The job as it is when its audio is stored."""
    result = stored_result(bench, job, body, audio_format, FRAMES)
    while isinstance(claimed := bench.client.run(claim("farm/store", "w", new_id("n"), 60_000, 0)), str):
        for pool in ("hibari/prosody", "hibari/decoder", "farm/finish"):
            step = bench.client.run(claim(pool, "w", new_id("n"), 60_000, 0))
            if not isinstance(step, str) and pool == "farm/finish":
                bench.client.run(advance(step.task, step.token, 1, FRAMES))
            if not isinstance(step, str):
                bench.client.run(commit(step.task, step.token))
    assert claimed.task.job == job
    assert bench.client.run(commit(claimed.task, claimed.token, json.dumps(result))) == "ok"
