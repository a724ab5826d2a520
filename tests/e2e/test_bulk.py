"""Many lines on a farm of real processes, each of which is killed once on the way: a batch, and `speechmill submit`."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from speechmill.cli.bench.bulk import check
from speechmill.infra.embedded import EmbeddedS3, EmbeddedValkey

from .harness import STAGES, Farm, eventually

OF_BATCH = 100
OF_SUBMIT = 200
WITHIN_S = 120.0


@pytest.fixture
def farm(s3: EmbeddedS3, prefix: str, tmp_path: Path) -> Iterator[Farm]:
    """With a Valkey of its own, which may be killed."""
    valkey = EmbeddedValkey(tmp_path / "valkey", max_memory_mb=256)
    valkey.start()
    farm = Farm(valkey, s3, prefix, tmp_path)
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
    yield farm
    farm.stop()
    valkey.stop()


def start_batch(farm: Farm) -> str:
    lines = [
        {
            "custom_id": f"line-{number}",
            "method": "POST",
            "url": "/v1/audio/speech",
            "body": {"input": f"{number}.", "response_format": "pcm"},
        }
        for number in range(OF_BATCH)
    ]
    content = "\n".join(map(json.dumps, lines)).encode()
    uploaded = httpx.post(f"{farm.base}/v1/files", files={"file": ("in.jsonl", content)}, data={"purpose": "batch"})
    body = {"input_file_id": uploaded.json()["id"], "endpoint": "/v1/audio/speech", "completion_window": "24h"}
    answer = httpx.post(f"{farm.base}/v1/batches", json=body, timeout=30)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["id"])


def start_submit(farm: Farm, out: Path) -> "subprocess.Popen[bytes]":
    source = out.with_suffix(".txt")
    source.write_text("".join(f"Line {number}.\n" for number in range(OF_SUBMIT)))
    options = ["--out", str(out), "--url", farm.base]
    with (farm.logs / "submit.log").open("wb") as log:
        command = [sys.executable, "-m", "speechmill.cli.main", "submit", str(source), *options]
        return subprocess.Popen(command, stdout=log, stderr=log)


def batch_of(farm: Farm, batch: str) -> dict[str, Any]:
    with suppress(httpx.HTTPError):
        answer = httpx.get(f"{farm.base}/v1/batches/{batch}", timeout=30)
        if answer.status_code == 200:
            return dict(answer.json())
    return {"status": "unknown"}


def fetched(out: Path) -> int:
    """Lines that `submit` has brought home."""
    manifest = out / "manifest.jsonl"
    return manifest.read_bytes().count(b"\n") if manifest.exists() else 0


def test_every_line_comes_out_once_while_each_process_is_killed(farm: Farm, tmp_path: Path) -> None:
    out, port = tmp_path / "out", farm.base.rpartition(":")[2]
    batch, submitting = start_batch(farm), start_submit(farm, out)

    def again() -> None:
        farm.valkey.start()

    restarts: dict[str, Callable[[], Any]] = {
        "celery": lambda: farm.start("celery", "celery", "worker"),
        "worker": lambda: farm.start_worker(STAGES, "worker"),
        "api": lambda: farm.start("api", "api", "--port", port),
        "valkey": again,
    }
    assert farm.valkey.process is not None
    farm.processes["valkey"] = farm.valkey.process
    for at, (name, restart) in enumerate(restarts.items()):
        eventually(lambda wanted=5 + 40 * at: fetched(out) >= wanted, WITHIN_S, f"lines until {name} is killed")  # type: ignore[misc]
        assert submitting.poll() is None
        farm.kill(name)
        restart()
    del farm.processes["valkey"]
    assert submitting.wait(WITHIN_S) == 0, (farm.logs / "submit.log").read_text()
    assert check(out, OF_SUBMIT) > 0
    eventually(lambda: batch_of(farm, batch)["status"] == "completed", WITHIN_S, "the batch is completed")

    done = batch_of(farm, batch)
    assert done["request_counts"] == {"total": OF_BATCH, "completed": OF_BATCH, "failed": 0}
    assert done["error_file_id"] is None
    output = httpx.get(f"{farm.base}/v1/files/{done['output_file_id']}/content", timeout=30)
    lines = [json.loads(line) for line in output.text.splitlines()]
    assert sorted(line["custom_id"] for line in lines) == sorted(f"line-{number}" for number in range(OF_BATCH))
    assert len({line["response"]["body"]["file_id"] for line in lines}) == OF_BATCH
    ends = farm.client.server("control").hget(farm.client.keys.group(batch), "ends")
    assert int(ends or 0) == OF_BATCH, "no line became two jobs"
    listed = farm.client.server("control").zcard(f"{farm.client.keys.root}:jobs:default")
    assert listed == OF_SUBMIT, "no line became two jobs"
    for line in lines[:: OF_BATCH // 5]:
        body = line["response"]["body"]
        audio = httpx.get(f"{farm.base}/v1/files/{body['file_id']}/content", timeout=30)
        assert len(audio.content) == body["bytes"] > 0
