"""A batch of many lines on a farm of real processes, each of which is killed once on the way."""

import json
from collections.abc import Callable
from typing import Any

import httpx

from .harness import STAGES, Farm, eventually

LINES = 300
WITHIN_S = 90.0


def start_batch(farm: Farm) -> str:
    lines = [
        {
            "custom_id": f"line-{number}",
            "method": "POST",
            "url": "/v1/audio/speech",
            "body": {"input": f"{number}.", "response_format": "pcm"},
        }
        for number in range(LINES)
    ]
    content = "\n".join(map(json.dumps, lines)).encode()
    uploaded = httpx.post(f"{farm.base}/v1/files", files={"file": ("in.jsonl", content)}, data={"purpose": "batch"})
    body = {"input_file_id": uploaded.json()["id"], "endpoint": "/v1/audio/speech", "completion_window": "24h"}
    answer = httpx.post(f"{farm.base}/v1/batches", json=body, timeout=30)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["id"])


def batch_of(farm: Farm, batch: str) -> dict[str, Any]:
    return dict(httpx.get(f"{farm.base}/v1/batches/{batch}", timeout=30).json())


def await_completed(farm: Farm, batch: str, count: int) -> None:
    eventually(
        lambda: batch_of(farm, batch)["request_counts"]["completed"] >= count, WITHIN_S, f"{count} lines are spoken"
    )


def test_every_line_of_a_batch_comes_out_once_while_each_process_is_killed(farm: Farm) -> None:
    farm.settings |= {
        "SPEECHMILL_LIMITS__BULK_WINDOW": "64",
        "SPEECHMILL_WORKER__LEASE_S": "2",
        "SPEECHMILL_DATA_DIR": str(farm.logs),
    }
    farm.start_api()
    farm.start_worker(STAGES, "worker")
    farm.start("celery", "celery", "worker")
    farm.start("beat", "celery", "beat")
    farm.await_ready()
    batch = start_batch(farm)
    restarts: dict[str, Callable[[], Any]] = {
        "celery": lambda: farm.start("celery", "celery", "worker"),
        "worker": lambda: farm.start_worker(STAGES, "worker"),
        "api": farm.start_api,
    }
    for at, (name, restart) in enumerate(restarts.items()):
        await_completed(farm, batch, 10 + 80 * at)
        assert batch_of(farm, batch)["status"] == "in_progress"
        farm.kill(name)
        restart()
    farm.await_ready()
    eventually(lambda: batch_of(farm, batch)["status"] == "completed", WITHIN_S, "the batch is completed")

    done = batch_of(farm, batch)
    assert done["request_counts"] == {"total": LINES, "completed": LINES, "failed": 0}
    assert done["error_file_id"] is None
    output = httpx.get(f"{farm.base}/v1/files/{done['output_file_id']}/content", timeout=30)
    lines = [json.loads(line) for line in output.text.splitlines()]
    assert sorted(line["custom_id"] for line in lines) == sorted(f"line-{number}" for number in range(LINES))
    assert len({line["response"]["body"]["file_id"] for line in lines}) == LINES
    ends = farm.client.server("control").hget(farm.client.keys.group(batch), "ends")
    assert int(ends or 0) == LINES, "no line became two jobs"
    for line in lines[:: LINES // 5]:
        body = line["response"]["body"]
        audio = httpx.get(f"{farm.base}/v1/files/{body['file_id']}/content", timeout=30)
        assert len(audio.content) == body["bytes"] > 0
