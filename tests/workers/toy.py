"""A model of one stage whose audio is a known function of the text, and whose text says how it misbehaves."""

import hashlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from speechmill.configs.settings import load
from speechmill.infra.client import Client
from speechmill.infra.embedded import EmbeddedS3, EmbeddedValkey
from speechmill.infra.jobs import TERMINAL, JobRecord, read_record
from speechmill.infra.keys import FARM_STAGES, Keys, new_id, out_log
from speechmill.infra.messages import SpeechRequest, Submission
from speechmill.infra.objects import ObjectStore
from speechmill.infra.open_text import TextWriter
from speechmill.infra.protocol import Limits, LogReader, claim, reap, submit
from speechmill.infra.spill import Spill
from speechmill.models.card import EncodeCard, Licence, ModelCard, Parameters, Segments, StageCard, VoiceCard
from speechmill.models.stage import Chunk, Emission, Resume, SlotFailed, StageTask
from speechmill.workers.runner import Runner
from speechmill.workers.worker import Worker

RATE = 1000
PER_CHAR = 100
CARD = ModelCard(
    id="toy",
    family="toy",
    owned_by="tests",
    created=0,
    description="",
    licence=Licence(code="", weights=""),
    sample_rate=RATE,
    languages=("English",),
    default_voice="v",
    voices=(VoiceCard(name="v", languages=("English",)),),
    parameters=Parameters(),
    segments=Segments(max_chars=1000, ahead=4),
    stages=(StageCard(name="voice", unit="pcm", rate=RATE, dtype="s16le", slots=4),),
    encode=EncodeCard(modes=("icl", "xvec"), version=3),
)


def pcm_of(text: str) -> bytes:
    """What the toy says."""
    ramp = np.arange(len(text) * PER_CHAR) % 251
    return (
        (ramp + 300 * np.repeat(np.frombuffer(text.encode("ascii"), np.uint8).astype(int), PER_CHAR))
        .astype("<i2")
        .tobytes()
    )


@dataclass
class _Slot:
    text: str
    at: int
    whole: bool
    """All of the text is there."""


class Toy:
    """`poison` fails its whole batch, `refuse` is refused, `hang` is stuck once, `wait` waits for `gate`."""

    def __init__(self) -> None:
        self.slots: dict[int, _Slot] = {}
        self.gate = threading.Event()
        self.hang_s = 0.0
        self.tasks: list[StageTask] = []
        self.batches: list[list[str]] = []

    def warm(self) -> None:
        """Nothing to warm."""

    def open(self, slot: int, task: StageTask, resume: Resume) -> None:
        if "refuse" in task.text:
            raise SlotFailed(slot, "cannot say this")
        self.tasks.append(task)
        self.slots[slot] = _Slot(task.text, resume.end, not task.open)

    def feed(self, slot: int, chunk: Chunk) -> None:
        held = self.slots[slot]
        assert not held.whole, "nothing follows a text that is not open"
        held.text, held.whole = held.text + chunk.payload.decode(), chunk.final
        if "refuse" in held.text:
            raise SlotFailed(slot, "cannot say this")

    def runnable(self, slot: int) -> bool:
        held = self.slots[slot]
        if "wait" in held.text and not self.gate.is_set():
            return False
        return held.whole or held.at < PER_CHAR * len(held.text)

    def step(self, slots: Sequence[int]) -> list[Emission]:
        self.batches.append([self.slots[slot].text for slot in slots])
        if any("poison" in self.slots[slot].text for slot in slots):
            raise RuntimeError("poisoned")
        if any("hang" in self.slots[slot].text for slot in slots):
            time.sleep(self.hang_s)
        return [self._emit(slot) for slot in slots]

    def _emit(self, slot: int) -> Emission:
        held = self.slots[slot]
        part = pcm_of(held.text)[2 * held.at : 2 * (held.at + PER_CHAR)]
        held.at += len(part) // 2
        return Emission(slot, len(part) // 2, part, final=held.whole and held.at == PER_CHAR * len(held.text))

    def close(self, slot: int) -> None:
        self.slots.pop(slot, None)


def features_of(clip: bytes, mode: str) -> bytes:
    """What the toy finds in a recording: its first and its second half, each a frame."""
    return clip[len(clip) // 2 :] + clip[: len(clip) // 2] + mode.encode() if clip else b""


class Encoder:
    """`refuse` is refused, nothing is found in an empty recording, the second half of a `wait` waits for `gate`."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.resumed: list[int] = []
        self.slots: dict[int, tuple[bytes, list[bytes]]] = {}
        """The recording and the frames to come."""

    def warm(self) -> None:
        """Nothing to warm."""

    def open(self, slot: int, task: StageTask, resume: Resume) -> None:
        clip = task.assets["clip"]
        if b"refuse" in clip:
            raise SlotFailed(slot, "cannot hear this")
        features = features_of(clip, str(task.params["mode"]))
        half = len(features) // 2
        frames = [features[:half], features[half:]] if clip else []
        self.resumed.append(resume.end)
        self.slots[slot] = clip, frames[resume.end :]

    def feed(self, slot: int, chunk: Chunk) -> None:
        raise AssertionError("a first stage has no input")

    def runnable(self, slot: int) -> bool:
        clip, left = self.slots[slot]
        return b"wait" not in clip or len(left) == 2 or self.gate.is_set()

    def step(self, slots: Sequence[int]) -> list[Emission]:
        return [self._emit(slot) for slot in slots]

    def _emit(self, slot: int) -> Emission:
        _, left = self.slots[slot]
        if not left:
            return Emission(slot, final=True)
        return Emission(slot, 1, left.pop(0), final=not left)

    def close(self, slot: int) -> None:
        self.slots.pop(slot, None)


def wait_for(true: Callable[[], object], within_s: float = 10) -> None:
    until = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < until
        time.sleep(0.01)


class ToyFarm:
    """Workers in threads of this process, on the real Valkey and S3."""

    def __init__(self, valkey: EmbeddedValkey, s3: EmbeddedS3, prefix: str, **sections: dict[str, object]) -> None:
        self.settings = load().model_copy(deep=True)
        self._set("redis", control_url=valkey.url, prefix=prefix)
        own = {"endpoint_url": s3.endpoint_url, "access_key": s3.access_key, "secret_key": s3.secret_key}
        self._set("s3", **own, bucket=s3.bucket)
        for section, values in sections.items():
            self._set(section, **values)
        self.client = Client(valkey.url, valkey.url, Keys(prefix))
        self.client.load()
        self.objects = ObjectStore(s3.bucket, s3.endpoint_url, s3.access_key, s3.secret_key)
        self.spill = Spill(self.objects)
        self._running: list[tuple[Worker, threading.Thread]] = []

    def _set(self, section: str, **values: object) -> None:
        for name, value in values.items():
            setattr(getattr(self.settings, section), name, value)

    def start(
        self, slots: int = 4, farm_stages: Sequence[str] = FARM_STAGES, encoder: Encoder | None = None
    ) -> tuple[Toy, Worker]:
        """One more worker; it reads recordings where it is given an encoder."""
        toy = Toy()
        runners = [Runner("toy/voice", CARD.stages[0], toy, slots)]
        if encoder is not None:
            runners.append(Runner("toy/encode", CARD.stage("encode"), encoder, slots))
        worker = Worker(self.settings, runners, farm_stages)
        thread = threading.Thread(target=worker.run, daemon=True)
        thread.start()
        self._running.append((worker, thread))
        return toy, worker

    def end(self, worker: Worker) -> None:
        """Drain it, and wait until it has left."""
        worker.drain()
        next(thread for each, thread in self._running if each is worker).join(20)

    def stop(self) -> None:
        for worker, _ in self._running:
            worker.drain()
        for _, thread in self._running:
            thread.join(20)
            assert not thread.is_alive()

    def lose(self, *pools: str, jobs: int) -> None:
        """A worker claims a task of each job in each of these pools, and is never heard of again."""
        for pool in pools:
            for _ in range(jobs):
                assert not isinstance(self.client.run(claim(pool, "lost", new_id("n"), 1, 0)), str)
        time.sleep(0.01)
        self.client.run(reap())

    def submit(
        self,
        *segments: str,
        rate: int = RATE,
        attempts: int = 3,
        timeout_s: float = 60,
        assets: dict[str, str] | None = None,
    ) -> str:
        job = new_id("job")
        request = SpeechRequest("v", 1, "wav", rate, 1, assets=assets or {})
        submission = Submission(
            job, "toy", ("voice",), segments, request, max_attempts=attempts, live=True, timeout_s=timeout_s
        )
        assert self.client.run(submit(submission, Limits())).answer == "ok"
        return job

    def submit_open(self, *pieces: str, timeout_s: float = 60) -> tuple[str, TextWriter]:
        """A job whose text has come so far, and what brings the rest of it."""
        request = SpeechRequest("v", 1, "wav", RATE, 1, open_text=True)
        submission = Submission(new_id("job"), "toy", ("voice",), ("",), request, live=True, timeout_s=timeout_s)
        writer = TextWriter(submission.job, 600)
        self.client.run_all([writer.begin(), *map(writer.append, pieces)])
        assert self.client.run(submit(submission, Limits())).answer == "ok"
        return submission.job, writer

    def submit_recording(self, clip: bytes, mode: str = "xvec") -> str:
        """A job that encodes it."""
        digest = hashlib.sha256(clip).hexdigest()
        params = {"mode": mode, "sha256": digest}
        assets = {"clip": self.put(f"references/{digest}", clip)}
        request = SpeechRequest("", 0, "", RATE, 1, params=params, assets=assets, keep_s=1000)
        submission = Submission(new_id("job"), "toy", ("encode",), ("",), request, tail=("keep",), timeout_s=60)
        assert self.client.run(submit(submission, Limits())).answer == "ok"
        return submission.job

    def put(self, key: str, content: bytes) -> str:
        """An object in the store; answers its key."""
        return self.objects.put_once(key, content, "application/octet-stream").key

    def record(self, job: str) -> JobRecord:
        record = read_record(self.client, job)
        assert record is not None
        return record

    def state(self, job: str, within_s: float = 20) -> str:
        """The terminal state that the job reaches."""
        until = time.monotonic() + within_s
        while (state := self.record(job).state) not in TERMINAL:
            assert time.monotonic() < until, f"{job} is still {state}"
            time.sleep(0.02)
        return state

    def out(self, job: str, take: int = 1) -> bytes:
        reader, parts = LogReader(0, 2), []
        while entries := self.client.read_log(out_log(job, take), reader.entry, 100):
            parts += [chunk.payload for chunk in reader.entries(entries)]
        return b"".join(parts)

    def stored(self, job: str) -> bytes:
        result = self.record(job).result
        assert result is not None
        return b"".join(self.objects.get(result["key"]))[44:]


Make = Callable[..., ToyFarm]
