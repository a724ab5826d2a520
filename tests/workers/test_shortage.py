"""Servers without memory, stores that are away, tasks that are lost while their audio waits."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis

from speechmill.infra.embedded import EmbeddedS3, EmbeddedValkey
from speechmill.infra.jobs import end
from speechmill.infra.keys import LogRef, Task, out_log
from speechmill.infra.messages import SpeechRequest, WordMark
from speechmill.infra.objects import ObjectStore
from speechmill.infra.protocol import LogReader
from speechmill.infra.spill import Spill
from speechmill.models.stage import Chunk, Mark, Resume
from speechmill.workers import spiller
from speechmill.workers.assets import Assets
from speechmill.workers.finish import FarmTask
from speechmill.workers.intake import Intake
from speechmill.workers.loop import Loop
from speechmill.workers.store import Store

from .toy import RATE, ToyFarm, pcm_of

LONG = "a segment of some length"


@pytest.fixture
def small(s3: EmbeddedS3, tmp_path: Path) -> Iterator[ToyFarm]:
    """A farm on a server of its own, which the test may fill."""
    server = EmbeddedValkey(tmp_path / "valkey", max_memory_mb=64)
    server.start()
    farm = ToyFarm(server, s3, "small", retention={"replay_window_s": 1000.0}, worker={"lease_s": 2.0})
    yield farm
    farm.stop()
    farm.client.close()
    server.stop()


@pytest.fixture
def farm(valkey: EmbeddedValkey, s3: EmbeddedS3, prefix: str) -> Iterator[ToyFarm]:
    farm = ToyFarm(valkey, s3, prefix)
    yield farm
    farm.stop()


def wait_for(true: Callable[[], object], within_s: float = 10) -> None:
    until = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < until
        time.sleep(0.01)


def fill(server: redis.Redis) -> None:
    """Leave the server no memory."""
    server.set("junk", bytes(4 << 20))
    server.config_set("maxmemory", 2 << 20)
    with pytest.raises(redis.ResponseError, match="maxmemory"):
        server.set("junk", "more")


def test_workers_start_and_bring_accepted_work_to_its_end_while_the_server_has_no_memory_left(small: ToyFarm) -> None:
    jobs = [small.submit("one", "two") for _ in range(8)]
    fill(small.client.server("control"))
    small.start()
    assert [small.state(job) for job in jobs] == ["succeeded"] * 8
    assert small.stored(jobs[-1]) == pcm_of("one") + pcm_of("two")
    assert small.client.server("control").exists(small.client.keys.pressure())


def test_audio_leaves_the_memory_early_while_it_is_short(small: ToyFarm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spiller, "SHORT_WINDOW_S", 1.0)
    job = small.submit(*[LONG] * 6)
    fill(small.client.server("control"))
    small.start()
    assert small.state(job) == "succeeded"
    assert small.stored(job) == pcm_of(LONG) * 6
    assert int(small.client.server("chunks").hget(small.client.keys.log_meta(out_log(job, 1)), "first") or 0) > 0


def test_audio_of_a_cancelled_job_does_not_wait_for_memory(farm: ToyFarm) -> None:
    farm.client.server("chunks").set(farm.client.keys.pressure(), 1)
    toy, worker = farm.start()
    job = farm.submit("wait first", "second")
    wait_for(lambda: len(toy.batches) >= len("second"))
    end(farm.client, job, "cancelled", "", 60)
    assert farm.state(job) == "cancelled"
    wait_for(worker._outlet.idle, within_s=2)
    farm.client.server("chunks").delete(farm.client.keys.pressure())


def test_a_result_is_filed_once_the_servers_are_back(s3: EmbeddedS3) -> None:
    tries, woken = [], threading.Event()

    def register(key: str, due: float) -> None:
        tries.append(key)
        if len(tries) == 1:
            raise redis.ConnectionError("away")

    objects = ObjectStore(s3.bucket, s3.endpoint_url, s3.access_key, s3.secret_key)
    with ThreadPoolExecutor(1) as uploads:
        store = Store(objects, register, uploads, woken.set)
        request = SpeechRequest("v", 1, "pcm", RATE, 1)
        job = f"job_{threading.get_native_id()}_{time.time_ns()}"
        store.open(
            0, FarmTask(job, 1, -1, "", "v", 1, request=request, segments=1, native_rate=RATE, token="1:x"), Resume()
        )
        store.feed(0, Chunk(0, 2, b"abcd"))
        store.feed(0, Chunk(2, 2, final=True))
        assert store.step([0]) == []
        assert woken.wait(10)
        (made,) = store.step([0])
        store.close(0)
    assert len(tries) == 2
    assert b"".join(objects.get(str(made.trailer["key"]))) == b"abcd"


def test_samples_that_are_to_be_heard_again_are_kept_beside_a_file_that_has_lost_some(s3: EmbeddedS3) -> None:
    objects, kept, woken = ObjectStore(s3.bucket, s3.endpoint_url, s3.access_key, s3.secret_key), {}, threading.Event()
    job = f"job_{threading.get_native_id()}_{time.time_ns()}"
    request = SpeechRequest("v", 1, "mp3", 24_000, 1, replay=True)
    task = FarmTask(job, 1, -1, "", "v", 1, request=request, segments=1, native_rate=24_000, token="1:x")
    pcm = pcm_of(LONG)
    with ThreadPoolExecutor(1) as uploads:
        store = Store(objects, kept.__setitem__, uploads, woken.set)
        store.open(0, task, Resume())
        store.feed(0, Chunk(0, len(pcm) // 2, pcm, (Mark("segment", 10, 50),)))
        store.feed(0, Chunk(len(pcm) // 2, len(pcm) // 2, final=True))
        store.step([0])
        assert woken.wait(10)
        (made,) = store.step([0])
        store.close(0)
    assert Spill(objects).read(out_log(job, 1), 0) == (0, pcm, (WordMark("segment", 10, 50),))
    assert {key.rsplit("/", 1)[1] for key in kept if key.startswith("spill/")} == {
        f"{0:012d}-{len(pcm) // 2:012d}.pcm{suffix}" for suffix in ("", ".marks")
    }
    assert made.trailer["frames"] == len(pcm) // 2


def test_an_input_in_very_many_spilled_pieces_is_read_without_end_of_stack(
    farm: ToyFarm, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces, out = 2000, out_log("job_1", 1)
    fed: list[Chunk] = []

    class Work:
        """What `_read` looks at."""

        task = Task("job_1", 1, None, "store")
        inputs = (out,)
        reader = LogReader(0, 2)
        last_input = 0.0

    class Pieces:
        def read(self, log: LogRef, position: int) -> tuple[int, bytes] | None:
            return (position, b"ab") if position < pieces else None

    loop = Loop([], lambda outcome: None)
    intake = Intake(farm.client, loop, "w", 1000, Pieces(), Assets(farm.objects))  # type: ignore[arg-type]
    monkeypatch.setattr(intake, "_pass_on", lambda work, chunks: fed.extend(chunks))
    farm.client.server("chunks").xadd(farm.client.keys.log(out), {"s": pieces, "d": b"ef"}, id=f"{pieces + 1}-0")
    intake._read(Work)  # type: ignore[arg-type]
    assert fed[-1].end == pieces + 1
