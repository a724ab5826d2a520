"""A farm of real processes for tests: each role is its own process on the shared Valkey and S3."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np
from numpy.typing import NDArray

from speechmill.cli.bench.farm import free_port
from speechmill.infra.client import UNAVAILABLE, Client
from speechmill.infra.embedded import EmbeddedS3, EmbeddedValkey
from speechmill.infra.jobs import TERMINAL, JobRecord, read_record, read_tasks
from speechmill.infra.keys import Keys, new_id, out_log
from speechmill.infra.messages import SpeechRequest, Submission
from speechmill.infra.objects import ObjectStore
from speechmill.infra.protocol import Limits, LogReader, submit

START_S = 60.0
STAGES = ("prosody", "decoder", "finish", "store")


def eventually(true: Callable[[], bool], within_s: float, what: str) -> None:
    """Wait until it holds; fails the test when it does not in time."""
    until = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < until, f"not within {within_s} s: {what}"
        time.sleep(0.02)


@dataclass
class Farm:
    """Starts roles, submits jobs and reads what came out."""

    valkey: EmbeddedValkey
    s3: EmbeddedS3
    prefix: str
    logs: Path
    settings: dict[str, str] = field(default_factory=dict)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    base: str = ""

    def __post_init__(self) -> None:
        self.client = Client(self.valkey.url, self.valkey.url, Keys(self.prefix))
        self.client.load()
        self.objects = ObjectStore(self.s3.bucket, self.s3.endpoint_url, self.s3.access_key, self.s3.secret_key)

    def start(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        """A role as a process of its own; a second start under the same name takes the first one's place."""
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("SPEECHMILL_")},
            "SPEECHMILL_REDIS__CONTROL_URL": self.valkey.url,
            "SPEECHMILL_REDIS__PREFIX": self.prefix,
            "SPEECHMILL_S3__ENDPOINT_URL": self.s3.endpoint_url,
            "SPEECHMILL_S3__ACCESS_KEY": self.s3.access_key,
            "SPEECHMILL_S3__SECRET_KEY": self.s3.secret_key,
            **self.settings,
        }
        command = [sys.executable, "-m", "speechmill.cli.main", *arguments]
        with (self.logs / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        return self.processes[name]

    def start_worker(self, stages: Sequence[str] = STAGES, name: str = "") -> subprocess.Popen[bytes]:
        return self.start(name or f"worker-{'-'.join(stages)}", "worker", "--stage", ",".join(stages))

    def start_api(self) -> None:
        port = free_port()
        self.base = f"http://127.0.0.1:{port}"
        self.start("api", "api", "--port", str(port))

    def await_workers(self, stages: Sequence[str] = STAGES) -> None:
        pools = [f"farm/{s}" if s in ("finish", "store") else f"hibari/{s}" for s in stages]
        control = self.client.server("control")
        eventually(lambda: all(control.zcard(self.client.keys.workers(p)) for p in pools), START_S, "workers are up")

    def await_ready(self) -> None:
        def ready() -> bool:
            with suppress(httpx.HTTPError):
                return httpx.get(f"{self.base}/health/ready", timeout=5).status_code == 200
            return False

        eventually(ready, START_S, "the API is ready")

    def await_started(self, name: str) -> None:
        """The worker that has this name now takes tasks."""
        control, mine = self.client.server("control"), f"-{self.processes[name].pid}-".encode()

        def is_known() -> bool:
            pools = control.scan_iter(self.client.keys.workers("*"))
            return any(mine in worker for pool in pools for worker in control.zrange(pool, 0, -1))

        eventually(is_known, START_S, f"{name} is up")

    def leased(self, stage: str) -> int:
        """Tasks of the stage that workers hold now."""
        pool = f"farm/{stage}" if stage in ("finish", "store") else f"hibari/{stage}"
        return int(self.client.server("control").hget(self.client.keys.leased(), pool) or 0)

    def claims(self, job: str) -> dict[str, int]:
        """How often each of the job's tasks was claimed."""
        control, keys = self.client.server("control"), self.client.keys
        return {str(task): int(control.hget(keys.task(task), "epoch") or 0) for task in read_tasks(self.client, job)}

    def done(self, job: str, stage: str) -> bool:
        """Whether a task of this stage of the job is committed."""
        control, keys = self.client.server("control"), self.client.keys
        tasks = [task for task in read_tasks(self.client, job) if task.stage == stage]
        return any(control.hget(keys.task(task), "state") == b"done" for task in tasks)

    def kill(self, name: str) -> None:
        self.processes[name].send_signal(signal.SIGKILL)
        self.processes[name].wait()

    def stop(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
        for process in self.processes.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.client.close()

    def submit(self, segments: Sequence[str], seed: int = 1, live: bool = True, timeout_s: float = 300) -> str:
        job = new_id("job")
        request = SpeechRequest("heart", seed, "wav", 24_000, 1, params={"speed": 1.0}, silence_ms=120)
        submission = Submission(
            job, "hibari", ("prosody", "decoder"), tuple(segments), request, live=live, timeout_s=timeout_s
        )
        assert self.client.run(submit(submission, Limits())).answer == "ok"
        self.client.wait_durable()
        return job

    def record(self, job: str) -> JobRecord:
        record = read_record(self.client, job)
        assert record is not None
        return record

    def await_end(self, jobs: Sequence[str], within_s: float) -> None:
        """Every job reaches a terminal state, also over a Valkey that is away for a while."""
        left = list(jobs)

        def ended() -> bool:
            with suppress(*UNAVAILABLE):
                left[:] = [job for job in left if self.record(job).state not in TERMINAL]
            return not left

        eventually(ended, within_s, f"{len(left)} jobs end")

    def out(self, job: str) -> bytes:
        """What the job's `out` log holds, read from the start."""
        reader, parts = LogReader(0, 2), []
        while entries := self.client.read_log(out_log(job, 1), reader.entry, 100):
            parts += [chunk.payload for chunk in reader.entries(entries)]
        return b"".join(parts)

    def stored(self, job: str) -> bytes:
        """The PCM of the stored object."""
        result = self.record(job).result
        assert result is not None
        body = b"".join(self.objects.get(result["key"]))
        assert len(body) == result["bytes"]
        if result["format"] == "pcm":
            return body
        assert int.from_bytes(body[40:44], "little") == len(body) - 44
        return body[44:]


def samples(pcm: bytes) -> NDArray[np.int32]:
    return np.frombuffer(pcm, "<i2").astype(np.int32)


def assert_same_pcm(made: bytes, wanted: bytes) -> None:
    """The design's *pcm* level: exact length, at most one unit of s16 apart."""
    assert len(made) == len(wanted)
    assert np.abs(samples(made) - samples(wanted)).max(initial=0) <= 1
