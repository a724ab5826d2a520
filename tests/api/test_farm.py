"""The API in this process on the real servers, when those misbehave. No worker runs; the tests write the logs."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import httpx
import pytest
import redis

from speechmill.api import farm as farm_module
from speechmill.api import listen
from speechmill.api.app import create_app
from speechmill.api.farm import FarmState
from speechmill.api.listen import Listener
from speechmill.configs.settings import Settings, load
from speechmill.infra.client import AsyncClient, Client
from speechmill.infra.embedded import EmbeddedS3, EmbeddedValkey
from speechmill.infra.jobs import read_record
from speechmill.infra.keys import Keys, LogRef, new_id, out_log
from speechmill.infra.messages import LogChunk, SpeechRequest, Submission
from speechmill.infra.objects import ObjectStore
from speechmill.infra.protocol import (
    Append,
    Limits,
    beat,
    emit,
    end_job,
    fence,
    leave,
    press,
    retire,
    seal,
    submit,
    trim,
)
from speechmill.infra.spill import READ_BYTES, Spill

POOLS = [("hibari/prosody", 1), ("hibari/decoder", 1), ("farm/finish", 1), ("farm/store", 1)]
TOKEN = "1:test"  # noqa: S105  the claim that may write


class Bench:
    """An app, and the other side of its logs."""

    def __init__(self, valkey: EmbeddedValkey, s3: EmbeddedS3, prefix: str) -> None:
        self.settings: Settings = load().model_copy(deep=True)
        self.settings.redis.control_url, self.settings.redis.prefix = valkey.url, prefix
        self.settings.s3.endpoint_url, self.settings.s3.bucket = s3.endpoint_url, s3.bucket
        self.settings.s3.access_key, self.settings.s3.secret_key = s3.access_key, s3.secret_key
        self.client = Client(valkey.url, valkey.url, Keys(prefix))
        self.client.load()
        self.objects = ObjectStore(s3.bucket, s3.endpoint_url, s3.access_key, s3.secret_key)
        self.app = create_app(self.settings)
        self.farm: FarmState = self.app.state.farm

    def run(self, talk: Callable[[], Awaitable[None]]) -> None:
        async def main() -> None:
            self.client.run(beat("w", "{}", 60_000, POOLS))
            await self.farm.start()
            try:
                await talk()
            finally:
                await self.farm.stop()

        asyncio.run(main())

    async def ask(self, method: str, path: str, **body: object) -> httpx.Response:
        transport = httpx.ASGITransport(self.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.request(method, path, json=body or None)

    def new_job(self) -> LogRef:
        """A job that runs, and its open `out` log."""
        job = new_id("job")
        request = SpeechRequest("heart", 1, "wav", 24_000, 1)
        submission = Submission(job, "hibari", ("prosody", "decoder"), ("Hi",), request, live=True)
        assert self.client.run(submit(submission, Limits())).answer == "ok"
        out = out_log(job, 1)
        self.client.run(fence(out, TOKEN, -1, 600, "{}"))
        return out

    def emit(self, out: LogRef, start: int, pcm: bytes) -> int:
        end = start + len(pcm) // 2
        assert self.client.run(emit(out, TOKEN, Append(start, end, end, pcm), 600)) == "ok"
        return end

    async def hear(self, out: LogRef, heard: list[LogChunk]) -> None:
        async with self.farm.listening.listen(out, 2, 600) as listener:
            await gather(listener, heard)


async def gather(listener: Listener, heard: list[LogChunk]) -> None:
    async for chunk in listener.chunks():
        heard.append(chunk)


def pcm_of(heard: list[LogChunk]) -> bytes:
    return b"".join(chunk.payload for chunk in heard)


@pytest.fixture
def bench(valkey: EmbeddedValkey, s3: EmbeddedS3, prefix: str) -> Iterator[Bench]:
    bench = Bench(valkey, s3, prefix)
    yield bench
    bench.client.close()


def test_a_burst_of_calls_waits_for_connections(valkey: EmbeddedValkey, prefix: str) -> None:
    async def main() -> list[str]:
        client = AsyncClient(valkey.url, valkey.url, Keys(prefix), max_connections=2)
        await client.load()
        answers = await asyncio.gather(*(client.run(press(1, "control")) for _ in range(50)))
        await client.close()
        return answers

    assert asyncio.run(main()) == ["ok"] * 50


def test_new_work_is_refused_while_memory_is_short(bench: Bench) -> None:
    async def talk() -> None:
        bench.client.run(press(60, "chunks"))
        answer = await bench.ask("POST", "/v1/audio/speech", input="Hi")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "queue_full")
        assert int(answer.headers["retry-after"]) > 0

    bench.run(talk)


def test_work_that_is_not_on_the_disk_in_time_is_not_accepted(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    async def talk() -> None:
        server = bench.farm.client.server("control")
        execute = server.execute_command

        async def slow_disk(*command: object, **options: object) -> object:
            return [0, 0] if command[0] == "WAITAOF" else await execute(*command, **options)

        monkeypatch.setattr(server, "execute_command", slow_disk)
        assert (await bench.ask("POST", "/v1/audio/speech", input="Hi")).status_code == 503

    bench.run(talk)


def test_a_job_whose_caller_was_refused_does_not_go_on(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away() -> None:
        raise redis.ConnectionError("away")

    async def talk() -> None:
        monkeypatch.setattr(bench.farm.client, "wait_durable", away)
        answer = await bench.ask("POST", "/v1/audio/speech", input="Hi", store=True)
        assert answer.status_code == 503

    bench.run(talk)
    (key,) = bench.client.server("control").keys(bench.client.keys.job("*"))
    record = read_record(bench.client, key.decode().rsplit(":", 1)[1])
    assert record is not None
    assert record.state == "cancelled"


def test_a_cancellation_is_tried_again_when_the_server_is_back(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []

    async def cancel(job: str, reason: str, error: str = "") -> None:
        tries.append(job)
        if len(tries) == 1:
            raise redis.ConnectionError("away")

    async def talk() -> None:
        monkeypatch.setattr(bench.farm, "cancel", cancel)
        bench.farm.cancel_soon("job_1", "client")

    monkeypatch.setattr(farm_module, "CANCEL_PAUSES_S", (0.01, 0.01))
    bench.run(talk)
    assert tries == ["job_1", "job_1"]


def test_a_server_that_answers_with_errors_is_a_503_and_not_our_fault(bench: Bench) -> None:
    async def talk() -> None:
        bench.client.server("control").set(bench.client.keys.leased(), "no hash")
        for path in ("/metrics", "/v1/models"):
            answer = await bench.ask("GET", path)
            assert (answer.status_code, answer.json()["error"]["type"]) == (503, "overloaded_error")

    bench.run(talk)


def test_a_model_whose_worker_has_just_come_is_served(bench: Bench) -> None:
    async def talk() -> None:
        card = bench.farm.models[0]
        bench.client.run(leave("w", [pool for pool, _ in POOLS]))
        assert (await bench.farm.state(card, fresh=True)).status == "no_workers"
        bench.client.run(beat("w", "{}", 60_000, POOLS))
        await bench.farm.admit(card, interactive=True)

    bench.run(talk)


def test_an_object_store_that_hangs_takes_one_thread_however_often_it_is_asked(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    released, asked = threading.Event(), []

    def hang() -> bool:
        asked.append(1)
        return released.wait(10)

    async def talk() -> None:
        monkeypatch.setattr(bench.farm.objects, "ready", hang)
        answers = await asyncio.gather(*(bench.ask("GET", "/health/ready") for _ in range(10)))
        assert {answer.status_code for answer in answers} == {503}
        assert await asyncio.wait_for(asyncio.to_thread(len, asked), 1) == 1
        released.set()

    monkeypatch.setattr(farm_module, "STORE_S", 0.1)
    bench.run(talk)


def test_a_listener_goes_on_where_it_was_after_the_server_was_away(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, heard, asked = bench.new_job(), list[LogChunk](), []
    read_log = bench.farm.client.read_log

    async def flaky(source: LogRef, after: str, count: int) -> object:
        asked.append(after)
        if len(asked) == 1:
            raise redis.ConnectionError("away")
        return await read_log(source, after, count)

    async def talk() -> None:
        monkeypatch.setattr(bench.farm.client, "read_log", flaky)
        hearing = asyncio.create_task(bench.hear(out, heard))
        await asyncio.sleep(0.1)
        end = bench.emit(out, 0, b"ab" * 100)
        end = bench.emit(out, end, b"cd" * 10_000)  # too large for a hint: the log must be read
        end = bench.emit(out, end, b"ef" * 100)
        end = bench.emit(out, end, b"gh" * 10_000)
        bench.client.run(seal(out, TOKEN, "{}"))
        await asyncio.wait_for(hearing, 10)

    bench.run(talk)
    assert pcm_of(heard) == b"ab" * 100 + b"cd" * 10_000 + b"ef" * 100 + b"gh" * 10_000
    assert len(asked) > 1


def test_a_log_stays_for_a_slow_reader_after_its_job(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    out, heard = bench.new_job(), list[LogChunk]()
    end = bench.emit(out, 0, b"ab" * 100)
    bench.client.run(seal(out, TOKEN, "{}"))

    async def talk() -> None:
        async with bench.farm.listening.listen(out, 2, 600) as listener:
            bench.client.run(retire([out], 1, "chunks"))
            await asyncio.sleep(1.5)
            await gather(listener, heard)

    monkeypatch.setattr(listen, "TOUCH_S", 0.1)
    bench.run(talk)
    assert len(pcm_of(heard)) == 2 * end


def test_a_log_that_is_gone_is_said_so_and_not_waited_for(bench: Bench) -> None:
    out = bench.new_job()

    async def talk() -> None:
        bench.client.run(retire([out], 0, "chunks"))
        bench.client.server("control").hset(bench.client.keys.job(out.task.job), "state", "succeeded")
        with pytest.raises(Exception, match="not kept"):
            await asyncio.wait_for(bench.hear(out, []), 5)

    bench.run(talk)


def test_spilled_audio_comes_in_pieces_that_a_slow_reader_can_hold(bench: Bench) -> None:
    out, heard = bench.new_job(), list[LogChunk]()
    pcm = bytes(range(256)) * (3 * READ_BYTES // 256)
    end = 0
    for at in range(0, len(pcm), READ_BYTES):
        end = bench.emit(out, end, pcm[at : at + READ_BYTES])
    Spill(bench.objects).write(out, 0, end, pcm)
    bench.client.run(trim(out, end))
    bench.emit(out, end, b"end!")
    bench.client.run(seal(out, TOKEN, "{}"))

    async def talk() -> None:
        await asyncio.wait_for(bench.hear(out, heard), 20)

    bench.run(talk)
    assert pcm_of(heard) == pcm + b"end!"
    assert max(len(chunk.payload) for chunk in heard) <= READ_BYTES


@pytest.fixture
def full(s3: EmbeddedS3, tmp_path: Path) -> Iterator[Bench]:
    """With a server of its own, which the test may fill."""
    valkey = EmbeddedValkey(tmp_path / "valkey", max_memory_mb=64)
    valkey.start()
    bench = Bench(valkey, s3, "full")
    yield bench
    bench.client.close()
    valkey.stop()


def fill(server: redis.Redis) -> None:
    """Leave the server no memory."""
    server.set("junk", bytes(4 << 20))
    server.config_set("maxmemory", 2 << 20)
    with pytest.raises(redis.ResponseError, match="maxmemory"):
        server.set("junk", "more")


def test_listeners_hear_at_once_also_while_the_server_has_no_memory_left(full: Bench) -> None:
    out, heard, times = full.new_job(), list[LogChunk](), list[float]()
    fill(full.client.server("control"))

    async def talk() -> None:
        async with full.farm.listening.listen(out, 2, 600) as listener:
            await asyncio.sleep(0.2)
            times.append(time.monotonic())
            full.emit(out, 0, b"ab")
            chunks = listener.chunks()
            heard.append(await anext(chunks))
            times.append(time.monotonic())
        answer = await full.ask("POST", "/v1/audio/speech", input="Hi")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "out_of_memory")

    full.run(talk)
    assert pcm_of(heard) == b"ab"
    assert times[1] - times[0] < listen.SILENCE_S / 2
    assert full.client.run(end_job(out.task.job, "cancelled")) == "cancelled"
