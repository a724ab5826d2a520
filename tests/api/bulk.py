"""The workers' part in tests of many jobs: whatever waits is spoken, or fails."""

import json
from collections.abc import Callable
from typing import Any

from speechmill.infra.jobs import read_record
from speechmill.infra.keys import new_id
from speechmill.infra.messages import Claim
from speechmill.infra.protocol import advance, claim, commit, end_job

from .jobs import stored_result
from .test_farm import Bench

POOLS = ("hibari/prosody", "hibari/decoder", "farm/finish", "farm/store")
PCM = bytes(range(256)) * 4
FRAMES = len(PCM) // 2
FAILURE = json.dumps({"code": "generation_failed", "message": "the model made no audio"})


def nobody(_: str) -> bool:
    return False


def work(bench: Bench, fails: Callable[[str], bool] = nobody) -> list[str]:
    """Ids of the jobs that have ended by it; those whose text `fails` have failed."""
    ended: list[str] = []
    while claims := [found for pool in POOLS if isinstance(found := _claim(bench, pool), Claim)]:
        for one in claims:
            ended += _step(bench, one, fails)
    return ended


def _claim(bench: Bench, pool: str) -> Claim | str:
    return bench.client.run(claim(pool, "w", new_id("n"), 60_000, 0))


def _step(bench: Bench, held: Claim, fails: Callable[[str], bool]) -> list[str]:
    job = held.task.job
    if held.task.stage == "prosody" and fails(held.text):
        bench.client.run(end_job(job, "failed", FAILURE))
        return [job]
    if held.task.stage == "finish":
        bench.client.run(advance(held.task, held.token, held.segments, FRAMES))
    is_last = held.task.stage == "store"
    bench.client.run(commit(held.task, held.token, json.dumps(_result(bench, job)) if is_last else ""))
    return [job] if is_last else []


def _result(bench: Bench, job: str) -> dict[str, Any]:
    record = read_record(bench.client, job)
    assert record is not None
    return stored_result(bench, job, PCM, record.request.response_format, FRAMES)
