"""What an Idempotency-Key makes of a request that is sent again. No worker runs."""

import asyncio
from typing import Any

import httpx
import pytest

from speechmill.api.http import idempotency
from speechmill.infra.jobs import read_record
from speechmill.infra.protocol import seal

from .jobs import JOBS, TOKEN, error_of, open_log, write
from .test_farm import Bench

HELLO = {"request": {"input": "Hello there.", "seed": 3}}


async def post(bench: Bench, path: str, key: str, **content: Any) -> httpx.Response:
    transport = httpx.ASGITransport(bench.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test", timeout=30, verify=False) as client:
        return await client.post(path, headers={"Idempotency-Key": key}, **content)


@pytest.mark.parametrize("key", ["", "a b", "ü", "x" * 256])
def test_a_key_is_visible_ascii(bench: Bench, key: str) -> None:
    async def talk() -> None:
        transport = httpx.ASGITransport(bench.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test", verify=False) as client:
            headers = [(b"Idempotency-Key", key.encode())]
            answer = await client.post(JOBS, headers=headers, json=HELLO)
        assert error_of(answer) == (400, "invalid_idempotency_key", "Idempotency-Key")

    bench.run(talk)


def test_the_same_body_gets_the_same_answer_however_its_bytes_are_ordered(bench: Bench) -> None:
    async def talk() -> None:
        first = await post(bench, JOBS, "k", json=HELLO)
        again = await post(bench, JOBS, "k", json={"request": {"seed": 3, "input": "Hello there."}})
        assert (again.status_code, again.json(), again.headers["idempotent-replayed"]) == (202, first.json(), "true")
        assert again.headers["location"] == first.headers["location"]
        assert "idempotent-replayed" not in first.headers
        other = await post(bench, JOBS, "k", json={"request": {"input": "Hello there.", "seed": 4}})
        assert error_of(other) == (422, "idempotency_key_reused", "Idempotency-Key")
        assert (await post(bench, JOBS, "k2", json=HELLO)).json()["id"] != first.json()["id"]
        assert len(await _list(bench)) == 2

    bench.run(talk)


async def _list(bench: Bench) -> list[dict[str, Any]]:
    transport = httpx.ASGITransport(bench.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test", verify=False) as client:
        return list((await client.get(JOBS)).json()["data"])


def test_a_refusal_is_an_answer_and_a_fault_of_ours_is_none(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def talk() -> None:
        bad = {"request": {"input": " "}}
        assert error_of(await post(bench, JOBS, "bad", json=bad)) == (400, "empty_input", "request.input")
        assert (await post(bench, JOBS, "bad", json=bad)).headers["idempotent-replayed"] == "true"
        bench.farm.draining = True
        assert (await post(bench, JOBS, "k", json=HELLO)).status_code == 503
        bench.farm.draining = False
        assert (await post(bench, JOBS, "k", json=HELLO)).status_code == 202

    bench.run(talk)


def test_forms_are_the_same_if_their_parts_are(bench: Bench) -> None:
    async def upload(content: bytes, key: str = "f") -> httpx.Response:
        return await post(
            bench, "/v1/files", key, data={"purpose": "user_data"}, files={"file": ("a.txt", content, "text/plain")}
        )

    async def talk() -> None:
        first, again = await upload(b"one"), await upload(b"one")  # each with a boundary of its own
        assert first.json() == again.json()
        assert again.headers["idempotent-replayed"] == "true"
        assert error_of(await upload(b"two")) == (422, "idempotency_key_reused", "Idempotency-Key")

    bench.run(talk)


def test_long_answers_are_kept_in_the_store(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idempotency, "_INLINE_REPLY", 10)

    async def talk() -> None:
        first = await post(bench, JOBS, "long", json=HELLO)
        assert (await post(bench, JOBS, "long", json=HELLO)).json() == first.json()
        assert len(await _list(bench)) == 1

    bench.run(talk)


def test_what_is_worked_on_is_not_begun_again_unless_its_process_died(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idempotency, "LAPSE_S", 0.4)
    gate = asyncio.Event()
    admit = bench.farm.admit

    async def slowly(*arguments: Any, **options: Any) -> None:
        await gate.wait()
        await admit(*arguments, **options)

    async def talk() -> None:
        monkeypatch.setattr(bench.farm, "admit", slowly)
        first = asyncio.create_task(post(bench, JOBS, "k", json=HELLO))
        await asyncio.sleep(0.8)  # longer than a claim lasts that nobody renews
        second = await post(bench, JOBS, "k", json=HELLO)
        assert error_of(second) == (409, "idempotency_key_in_progress", None)
        assert (second.headers["retry-after"], second.headers["x-should-retry"]) == ("1", "true")
        gate.set()
        assert (await first).status_code == 202

    bench.run(talk)


def test_speech_that_is_asked_for_again_meanwhile_hears_the_same_job(bench: Bench) -> None:
    async def talk() -> None:
        body = {"input": "Hello there.", "response_format": "pcm", "stream_format": "audio"}
        calls = [asyncio.create_task(post(bench, "/v1/audio/speech", "s", json=body)) for _ in range(3)]
        jobs = await _until_there_is_a_job(bench)
        await asyncio.wait(calls, timeout=0.5)
        assert len(jobs) == len(await _list(bench)) == 1
        job = str(jobs[0]["id"])
        record = read_record(bench.client, job)
        assert record is not None
        out = open_log(bench, job)
        write(bench, out, 0, b"ab" * 1000)
        bench.client.run(seal(out, TOKEN, '{"frames": 1000}', 1000))
        answers = await asyncio.gather(*calls)
        assert {answer.content for answer in answers} == {b"ab" * 1000}
        assert {answer.headers["x-job-id"] for answer in answers} == {job}
        assert {answer.headers["x-seed"] for answer in answers} == {str(record.request.seed)}

    bench.run(talk)


async def _until_there_is_a_job(bench: Bench) -> list[dict[str, Any]]:
    until = asyncio.get_running_loop().time() + 20
    jobs: list[dict[str, Any]] = []
    while not jobs and asyncio.get_running_loop().time() < until:
        jobs = await _list(bench)
    return jobs
