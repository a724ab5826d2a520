"""Features of reference recordings: made once, by whoever asks first, on the real servers."""

import asyncio
import hashlib
import threading
import time
from collections.abc import Awaitable, Callable, Iterator

import pytest

from speechmill.api.callers import ANYBODY
from speechmill.api.errors import ApiError
from speechmill.api.farm import FarmState
from speechmill.api.references import encode as features
from speechmill.api.references.encode import KEPT_S, reference_assets
from speechmill.configs.settings import load
from speechmill.infra.client import Client
from speechmill.infra.embedded import EmbeddedS3, EmbeddedValkey
from speechmill.infra.errors import Overloaded
from speechmill.infra.jobs import read_record
from speechmill.infra.keys import Keys, features_key, new_id
from speechmill.infra.messages import Claim
from speechmill.infra.objects import ObjectStore
from speechmill.infra.protocol import beat, claim
from speechmill.models.card import EncodeCard, Licence, ModelCard, Parameters, Segments, StageCard
from speechmill.models.registry import cards
from speechmill.models.stage import StageOptions
from speechmill.models.tone import stages as tone
from speechmill.workers.runner import Runner
from speechmill.workers.worker import Worker

CARD = ModelCard(
    id="tests/echo",
    family="echo",
    owned_by="tests",
    created=0,
    description="",
    licence=Licence(code="", weights=""),
    sample_rate=1000,
    languages=("English",),
    parameters=Parameters(),
    segments=Segments(max_chars=1000),
    stages=(StageCard(name="voice", unit="pcm", rate=1000, dtype="s16le", slots=4),),
    encode=EncodeCard(modes=("icl", "xvec")),
)
DEAF = CARD.model_copy(update={"encode": None})
POOLS = [(pool, 1) for pool in ("tests/echo/voice", "tests/echo/encode", "farm/finish", "farm/store", "farm/keep")]
Talk = Callable[..., Awaitable[None]]


class Bench:
    """API processes in small, and at most one worker that reads recordings."""

    def __init__(self, valkey: EmbeddedValkey, s3: EmbeddedS3, prefix: str) -> None:
        self.settings = load().model_copy(deep=True)
        self.settings.redis.control_url, self.settings.redis.prefix = valkey.url, prefix
        self.settings.s3.endpoint_url, self.settings.s3.bucket = s3.endpoint_url, s3.bucket
        self.settings.s3.access_key, self.settings.s3.secret_key = s3.access_key, s3.secret_key
        self.client = Client(valkey.url, valkey.url, Keys(prefix))
        self.client.load()
        self.objects = ObjectStore(s3.bucket, s3.endpoint_url, s3.access_key, s3.secret_key)
        self.clip = new_id("clip").encode()
        self.digest = hashlib.sha256(self.clip).hexdigest()
        self._worker: tuple[Worker, threading.Thread] | None = None

    def serve(self) -> None:
        stage = tone.load(CARD, "encode", StageOptions(slots=4))
        worker = Worker(self.settings, [Runner("tests/echo/encode", CARD.stage("encode"), stage, 4)], ("keep",))
        thread = threading.Thread(target=worker.run, daemon=True)
        thread.start()
        self._worker = worker, thread

    def stop(self) -> None:
        if self._worker is not None:
            self._worker[0].drain()
            self._worker[1].join(20)
        self.client.close()

    def run(self, talk: Talk, processes: int = 1, alive: bool = True) -> None:
        """Let so many API processes talk. `alive`: every stage seems to have a worker."""

        async def main() -> None:
            if alive:
                self.client.run(beat("w", "{}", 60_000, POOLS))
            farms = [FarmState(self.settings) for _ in range(processes)]
            for farm in farms:
                await farm.start()
            try:
                await talk(*farms)
            finally:
                for farm in farms:
                    await farm.stop()

        asyncio.run(main())

    def put_clip(self) -> str:
        return self.objects.put_once(self.clip_key, self.clip, "audio/wav").key

    @property
    def clip_key(self) -> str:
        return f"references/{self.digest}.wav"

    def key(self, mode: str = "xvec") -> str:
        return features_key(CARD.id, mode, 1, self.digest)

    async def ask(self, farm: FarmState, mode: str = "xvec", card: ModelCard = CARD) -> dict[str, str]:
        return await reference_assets(farm, ANYBODY, card, self.clip_key, self.digest, mode)

    def jobs(self) -> list[str]:
        keys = self.client.server("control").keys(self.client.keys.job("*"))
        return sorted(key.decode().rsplit(":", 1)[1] for key in keys)

    def stays_s(self) -> float:
        """How long the features stay."""
        due = self.client.server("control").zscore(self.client.keys.expiry(), self.key())
        assert due is not None
        return due - time.time()


def wait_for(true: Callable[[], object], within_s: float = 10) -> None:
    until = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.fixture
def bench(valkey: EmbeddedValkey, s3: EmbeddedS3, prefix: str) -> Iterator[Bench]:
    cards()[CARD.id] = CARD
    bench = Bench(valkey, s3, prefix)
    yield bench
    bench.stop()
    cards().pop(CARD.id)


def test_a_model_that_reads_no_recordings_beforehand_gets_the_recording_alone(bench: Bench) -> None:
    async def talk(farm: FarmState) -> None:
        assert await bench.ask(farm, card=DEAF) == {"clip": bench.clip_key}

    bench.run(talk, alive=False)
    assert bench.jobs() == []


def test_only_a_model_that_reads_recordings_needs_workers_for_that(bench: Bench) -> None:
    async def talk(farm: FarmState) -> None:
        assert set((await farm.state(CARD, fresh=True)).stages) == {"voice", "encode", "finish", "store", "keep"}
        assert set((await farm.state(DEAF, fresh=True)).stages) == {"voice", "finish", "store"}

    bench.run(talk)


def test_whoever_asks_at_once_and_wherever_shares_one_job(bench: Bench) -> None:
    async def talk(*farms: FarmState) -> None:
        answers = await asyncio.gather(*(bench.ask(farm) for farm in farms * 3))
        assert answers == [{"features": bench.key()}] * 6

    bench.put_clip()
    bench.serve()
    bench.run(talk, processes=2)
    (job,) = bench.jobs()
    record = read_record(bench.client, job)
    assert record is not None
    assert (record.state, record.project, record.job_class) == ("succeeded", "default", "interactive")
    assert len(b"".join(bench.objects.get(bench.key()))) == 4 * tone.FEATURES


def test_a_job_that_features_wait_for_is_not_one_of_the_project_s(bench: Bench) -> None:
    async def talk(farm: FarmState) -> None:
        asking = asyncio.create_task(bench.ask(farm))
        await asyncio.to_thread(wait_for, bench.jobs)
        assert not bench.client.server("control").exists(f"{bench.client.keys.root}:projectlive")
        bench.serve()
        await asking

    bench.put_clip()
    bench.run(talk)


def test_each_mode_has_features_of_its_own(bench: Bench) -> None:
    async def talk(farm: FarmState) -> None:
        answers = await asyncio.gather(*(bench.ask(farm, mode) for mode in ("icl", "xvec")))
        assert [answer["features"] for answer in answers] == [bench.key("icl"), bench.key("xvec")]

    bench.put_clip()
    bench.serve()
    bench.run(talk)
    assert len(bench.jobs()) == 2


def test_features_that_are_there_are_used_without_a_worker_and_not_looked_for_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []

    async def talk(farm: FarmState) -> None:
        look_up = farm.objects.look_up
        monkeypatch.setattr(farm.objects, "look_up", lambda key: looked.append(key) or look_up(key))
        for _ in range(3):
            assert await bench.ask(farm) == {"features": bench.key()}
        monkeypatch.setattr(features, "KNOWN_S", 0.0)
        await bench.ask(farm)
        assert list(farm.features_seen) == [bench.key()]

    bench.objects.put_once(bench.key(), b"features", "application/octet-stream")
    bench.run(talk, alive=False)
    assert looked == [bench.key()] * 2
    assert bench.jobs() == []


def test_features_stay_for_a_day_after_their_last_use(bench: Bench) -> None:
    async def talk(farm: FarmState) -> None:
        await bench.ask(farm)
        assert KEPT_S - 60 < bench.stays_s() <= KEPT_S

    bench.put_clip()
    bench.serve()
    bench.run(talk)
    bench.client.server("control").zadd(bench.client.keys.expiry(), {bench.key(): time.time() + 60})
    bench.run(talk)
    assert len(bench.jobs()) == 1


def test_what_failed_is_tried_again_by_the_next_who_asks(bench: Bench) -> None:
    async def talk(farm: FarmState) -> None:
        with pytest.raises(ApiError) as failed:
            await bench.ask(farm)
        assert (failed.value.status, failed.value.code) == (500, "generation_failed")
        assert "recording" in failed.value.message
        bench.put_clip()
        assert (await bench.ask(farm))["features"] == bench.key()

    bench.serve()
    bench.run(talk)
    assert len(bench.jobs()) == 2


def test_without_workers_nothing_is_queued(bench: Bench) -> None:
    async def talk(farm: FarmState) -> None:
        with pytest.raises(Overloaded) as refused:
            await bench.ask(farm)
        assert refused.value.code == "no_workers"

    bench.run(talk, alive=False)
    assert bench.jobs() == []


def test_a_recording_that_nobody_begins_to_read_is_a_lack_of_workers(bench: Bench) -> None:
    async def talk(farm: FarmState) -> None:
        with pytest.raises(Overloaded) as refused:
            await bench.ask(farm)
        assert refused.value.code == "no_workers"

    bench.settings.limits.first_audio_timeout_s = 0.05
    bench.run(talk)


def test_a_recording_that_is_read_too_slowly_is_late(bench: Bench) -> None:
    async def talk(farm: FarmState) -> None:
        asking = asyncio.create_task(bench.ask(farm))
        await asyncio.to_thread(wait_for, bench.jobs)
        assert isinstance(bench.client.run(claim("tests/echo/encode", "w", "nonce", 60_000, 0)), Claim)
        asking.cancel()
        bench.settings.limits.first_audio_timeout_s = 0.05
        with pytest.raises(ApiError) as late:
            await bench.ask(farm)
        assert (late.value.status, late.value.code) == (504, "first_audio_timeout")

    bench.run(talk)
    assert len(bench.jobs()) == 1


def test_a_full_queue_refuses_recordings_too(bench: Bench) -> None:
    async def talk(farm: FarmState) -> None:
        with pytest.raises(Overloaded) as refused:
            await bench.ask(farm)
        assert refused.value.code == "queue_full"

    bench.settings.limits.queue_depth = 1
    bench.client.server("control").zadd(bench.client.keys.queued(CARD.id, "interactive"), {"job_1": time.time() * 1000})
    bench.run(talk)
