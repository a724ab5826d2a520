"""Jobs over the API in this process, on the real servers. No worker runs: the tests play its part."""

import asyncio
import json
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from speechmill.infra.encode import encoder
from speechmill.infra.jobs import read_record
from speechmill.infra.keys import LogRef, new_id, out_log
from speechmill.infra.messages import SpeechRequest, Submission
from speechmill.infra.objects import ObjectMissing
from speechmill.infra.protocol import (
    Append,
    Limits,
    advance,
    claim,
    commit,
    emit,
    end_job,
    fence,
    handback,
    reap,
    seal,
    submit,
    trim,
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


def succeed(bench: Bench, job: str, audio_format: str = "pcm", body: bytes = PCM) -> None:
    """The job as it is when its audio is stored."""
    record = read_record(bench.client, job)
    assert record is not None
    key = f"audio/2026/12/01/{job}/1-1-n.{audio_format}"
    stored = bench.objects.put_once(key, body, "audio/pcm")
    result = {
        "key": key,
        "format": audio_format,
        "media_type": f"audio/{audio_format}",
        "bytes": len(body),
        "sha256": stored.sha256,
        "sample_rate": 24_000,
        "channels": 1,
        "frames": FRAMES,
        "duration_ms": round(FRAMES / 24),
        "seed": record.request.seed,
        "word_timestamps": None,
    }
    while isinstance(claimed := bench.client.run(claim("farm/store", "w", new_id("n"), 60_000, 0)), str):
        for pool in ("hibari/prosody", "hibari/decoder", "farm/finish"):
            step = bench.client.run(claim(pool, "w", new_id("n"), 60_000, 0))
            if not isinstance(step, str) and pool == "farm/finish":
                bench.client.run(advance(step.task, step.token, 1, FRAMES))
            if not isinstance(step, str):
                bench.client.run(commit(step.task, step.token))
    assert claimed.task.job == job
    assert bench.client.run(commit(claimed.task, claimed.token, json.dumps(result))) == "ok"


# -- creation ---------------------------------------------------------------------------------------------------------


HI = {"input": "Hi"}
HOOK = {"url": "https://example.com/"}
BAD: list[tuple[dict[str, Any], str, str]] = [
    ({}, "missing_required_parameter", "request"),
    ({"request": "Hi"}, "invalid_type", "request"),
    ({"request": {}}, "missing_required_parameter", "request.input"),
    ({"request": {"input": " "}}, "empty_input", "request.input"),
    ({"request": {"input": "x" * 1_000_001}}, "input_too_long", "request.input"),
    ({"request": {**HI, "stream": True}}, "unsupported_parameter", "request.stream"),
    ({"request": {**HI, "stream_format": "sse"}}, "unsupported_parameter", "request.stream_format"),
    ({"request": {**HI, "voice": "nobody"}}, "invalid_voice", "request.voice"),
    ({"request": {**HI, "metadata": {"a": 1}}}, "invalid_type", "request.metadata"),
    ({"request": HI, "ttl_seconds": 59}, "invalid_value", "ttl_seconds"),
    ({"request": HI, "ttl_seconds": 2_592_001}, "invalid_value", "ttl_seconds"),
    ({"request": HI, "ttl_seconds": "60"}, "invalid_type", "ttl_seconds"),
    ({"request": HI, "deadline_seconds": 0}, "invalid_value", "deadline_seconds"),
    ({"request": HI, "max_attempts": 11}, "invalid_value", "max_attempts"),
    ({"request": HI, "webhook": {"url": "https://a.example/", "events": []}}, "invalid_value", "webhook.events"),
    ({"request": HI, "max_attempts": True}, "invalid_type", "max_attempts"),
    ({"request": HI, "priority": "high"}, "invalid_value", "priority"),
    ({"request": HI, "custom_id": ""}, "invalid_value", "custom_id"),
    ({"request": HI, "metadata": {"a": 1}}, "invalid_type", "metadata"),
    ({"request": HI, "output": {"filename": "../x"}}, "invalid_value", "output.filename"),
    ({"request": HI, "webhook": {}}, "missing_required_parameter", "webhook.url"),
    ({"request": HI, "webhook": {"url": "http://example.com/"}}, "webhook_url_forbidden", "webhook.url"),
    ({"request": HI, "webhook": {"url": "https://127.0.0.1/"}}, "webhook_url_forbidden", "webhook.url"),
    ({"request": HI, "webhook": {**HOOK, "events": ["x"]}}, "invalid_value", "webhook.events"),
]


def test_a_bad_job_names_its_fault_and_nothing_is_queued(bench: Bench) -> None:
    async def talk() -> None:
        for body, code, param in BAD:
            assert error_of(await ask(bench, "POST", JOBS, body)) == (400, code, param)
        assert (await ask(bench, "GET", JOBS)).json()["data"] == []

    bench.run(talk)


def test_a_job_is_told_as_it_was_ordered(bench: Bench) -> None:
    async def talk() -> None:
        body = {
            "request": {"input": "Hello there.", "seed": 3, "response_format": "mp3"},
            "priority": "batch",
            "custom_id": "c-1",
            "metadata": {"book": "7"},
            "max_attempts": 5,
            "colour": "red",
        }
        made = await ask(bench, "POST", JOBS, body)
        job = made.json()
        assert made.headers["location"] == f"{JOBS}/{job['id']}"
        assert made.headers["etag"] == f'"{job["version"]}"'
        assert made.headers["x-ignored-params"] == "colour"
        assert 1 <= int(made.headers["retry-after"]) <= 10
        expected: dict[str, Any] = {"status": "queued", "priority": "batch", "custom_id": "c-1"}
        expected |= {"metadata": {"book": "7"}}
        expected |= {"max_attempts": 5, "attempt": 1, "group_id": None, "error": None, "result": None}
        assert job | expected == job
        assert job["queue"]["position"] == 1
        assert job["progress"] == {"stage": "prosody", "segments_done": 0, "segments_total": 1, "audio_ms": 0}
        assert "request" not in job
        shown = await ask(bench, "GET", f"{JOBS}/{job['id']}?include=request")
        assert shown.json()["request"] == body["request"]
        record = read_record(bench.client, job["id"])
        assert record is not None
        assert (record.live, record.job_class) == (False, "batch")

    bench.run(talk)


def test_a_book_is_one_job_of_many_segments(bench: Bench) -> None:
    async def talk() -> None:
        job = await create(bench, "This is one more sentence of a long book. " * 20_000)
        shown = (await ask(bench, "GET", f"{JOBS}/{job}")).json()
        assert shown["progress"]["segments_total"] == 20_000
        assert (await ask(bench, "POST", f"{JOBS}/{job}/cancel")).json()["status"] == "cancelled"

    bench.run(talk)


# -- reading and waiting ----------------------------------------------------------------------------------------------


def test_only_the_project_s_own_jobs_are_there_and_none_of_the_farm_s(bench: Bench) -> None:
    async def talk() -> None:
        request = SpeechRequest("", 0, "", 24_000, 1)
        hidden = [
            Submission(new_id("job"), "hibari", ("prosody", "decoder"), ("Hi",), request, project="other"),
            Submission(new_id("job"), "hibari", ("encode",), ("",), request, tail=("keep",), counted=False),
        ]
        for one in hidden:
            assert bench.client.run(submit(one, Limits())).answer == "ok"
        for job in (*(one.job for one in hidden), "job_none"):
            assert error_of(await ask(bench, "GET", f"{JOBS}/{job}")) == (404, "job_not_found", None)
            assert (await ask(bench, "DELETE", f"{JOBS}/{job}?force=true")).status_code == 404
        assert (await ask(bench, "GET", JOBS)).json()["data"] == []

    bench.run(talk)


def test_a_known_version_is_not_told_again(bench: Bench) -> None:
    async def talk() -> None:
        job = await create(bench)
        tag = (await ask(bench, "GET", f"{JOBS}/{job}")).headers["etag"]
        for header in (tag, f"W/{tag}", f'"x", W/{tag}', "*"):
            known = await ask(bench, "GET", f"{JOBS}/{job}", **{"If-None-Match": header})
            assert (known.status_code, known.content, known.headers["etag"]) == (304, b"", tag)
        assert (await ask(bench, "GET", f"{JOBS}/{job}", **{"If-None-Match": '"99"'})).status_code == 200

    bench.run(talk)


def test_many_wait_for_news_on_one_connection_and_all_of_them_hear_it(bench: Bench) -> None:
    async def talk() -> None:
        job = await create(bench)
        version = (await ask(bench, "GET", f"{JOBS}/{job}")).json()["version"]
        known = {"If-None-Match": f'"{version}"'}
        waiting = [
            asyncio.create_task(ask(bench, "GET", f"{JOBS}/{job}?wait=30", **known)),
            *(
                asyncio.create_task(ask(bench, "GET", f"{JOBS}/{job}?wait=30&since_version={version}"))
                for _ in range(100)
            ),
        ]
        for_end = asyncio.create_task(ask(bench, "GET", f"{JOBS}/{job}?wait=30&wait_for=terminal"))
        done, _ = await asyncio.wait(waiting, timeout=0.5)
        assert not done
        start(bench, job)
        answers = [answer.json() for answer in await asyncio.gather(*waiting)]
        assert {answer["status"] for answer in answers} == {"running"}
        assert not for_end.done()
        bench.client.run(end_job(job, "failed", FAILURE))
        ended = (await for_end).json()
        assert (ended["status"], ended["queue"]) == ("failed", None)
        error = {"code": "generation_failed", "type": "server_error", "retryable": True}
        assert ended["error"] | error == ended["error"]

    bench.run(talk)


def test_a_wait_without_news_ends_as_it_was_asked(bench: Bench) -> None:
    async def talk() -> None:
        job = await create(bench)
        version = (await ask(bench, "GET", f"{JOBS}/{job}")).json()["version"]
        plain, known, since = await asyncio.gather(
            ask(bench, "GET", f"{JOBS}/{job}?wait=0.3"),
            ask(bench, "GET", f"{JOBS}/{job}?wait=0.3", **{"If-None-Match": f'"{version}"'}),
            ask(bench, "GET", f"{JOBS}/{job}?wait=0.3&since_version={version}"),
        )
        assert (plain.status_code, known.status_code, since.status_code) == (200, 304, 304)
        assert (await ask(bench, "GET", f"{JOBS}/{job}?wait=30&since_version={version - 1}")).status_code == 200
        assert error_of(await ask(bench, "GET", f"{JOBS}/{job}?wait=61")) == (400, "invalid_value", "wait")

    bench.run(talk)


# -- lists ------------------------------------------------------------------------------------------------------------


def test_a_list_is_paged_in_both_directions_and_orders(bench: Bench) -> None:
    async def page(query: str) -> dict[str, Any]:
        answer = await ask(bench, "GET", f"{JOBS}?{query}")
        assert answer.status_code == 200, answer.text
        return {**answer.json(), "ids": [job["id"] for job in answer.json()["data"]]}

    async def talk() -> None:
        jobs = [await create(bench) for _ in range(5)]
        newest = jobs[::-1]
        first = await page("limit=2")
        assert (first["ids"], first["has_more"]) == (newest[:2], True)
        assert (first["first_id"], first["last_id"]) == (newest[0], newest[1])
        rest = await page(f"limit=3&after={first['last_id']}")
        assert (rest["ids"], rest["has_more"]) == (newest[2:], False)
        assert (await page(f"limit=2&before={newest[3]}"))["ids"] == newest[1:3]
        assert (await page("order=asc"))["ids"] == jobs
        assert (await page(f"order=asc&limit=2&after={jobs[0]}"))["ids"] == jobs[1:3]
        for query, param in ((f"after={new_id('job')}", "after"), ("before=job_none", "before"), ("after=", "after")):
            assert error_of(await ask(bench, "GET", f"{JOBS}?{query}")) == (400, "invalid_cursor", param)
        for query, param in (("limit=0", "limit"), ("limit=101", "limit"), ("order=x", "order")):
            assert error_of(await ask(bench, "GET", f"{JOBS}?{query}"))[1:] == ("invalid_value", param)

    bench.run(talk)


def test_a_list_holds_what_is_asked_for(bench: Bench) -> None:
    async def found(query: str) -> set[str]:
        return {job["id"] for job in (await ask(bench, "GET", f"{JOBS}?{query}")).json()["data"]}

    async def talk() -> None:
        a = await create(bench, custom_id="a", metadata={"book": "7", "part": "1"})
        b = await create(bench, custom_id="b", metadata={"book": "7"})
        c = await create(bench)
        await ask(bench, "POST", f"{JOBS}/{c}/cancel")
        assert await found("custom_id=a") == {a}
        assert await found("metadata[book]=7") == {a, b}
        assert await found("metadata[book]=7&metadata[part]=1") == {a}
        assert await found("metadata[book]=8") == set()
        assert await found("status=cancelled") == {c}
        assert await found("status=cancelled&status=queued") == {a, b, c}
        assert await found("model=hibari&status=queued") == {a, b}
        assert await found("model=other") == set()
        assert await found("group_id=jobgrp_x") == set()
        at = (await ask(bench, "GET", f"{JOBS}/{a}")).json()["created_at"]
        assert await found(f"created_after={at - 1}&created_before={at + 60}") == {a, b, c}
        assert await found(f"created_before={at}") == await found(f"created_after={at + 60}") == set()

    bench.run(talk)


def test_dead_letters_are_the_jobs_that_were_given_up_on_until_they_are_sent_again(bench: Bench) -> None:
    async def found(query: str) -> list[str]:
        return [job["id"] for job in (await ask(bench, "GET", f"{JOBS}?{query}")).json()["data"]]

    async def talk() -> None:
        dead = await create(bench, custom_id="a", max_attempts=1)
        claimed = bench.client.run(claim("hibari/prosody", "w", new_id("n"), 60_000, 0))
        assert not isinstance(claimed, str)
        bench.client.run(handback(claimed.task, claimed.token, FAILURE))
        failed, queued = await create(bench), await create(bench)
        bench.client.run(end_job(failed, "failed", FAILURE))
        assert await found("status=failed") == [failed, dead]
        assert await found("dead=true") == await found("dead=true&custom_id=a") == [dead]
        assert await found("dead=true&custom_id=b") == []
        assert await found("dead=false") == [queued, failed, dead]
        assert (await ask(bench, "POST", f"{JOBS}/{dead}/retry")).status_code == 202
        assert await found("dead=true") == []

    bench.run(talk)


# -- ends -------------------------------------------------------------------------------------------------------------


def test_a_cancelled_job_can_be_sent_again_with_another_seed(bench: Bench) -> None:
    async def talk() -> None:
        job = await create(bench)
        for _ in range(2):
            cancelled = await ask(bench, "POST", f"{JOBS}/{job}/cancel")
            assert (cancelled.status_code, cancelled.json()["status"]) == (200, "cancelled")
        assert cancelled.json()["error"] is None
        assert cancelled.json()["expires_at"] == cancelled.json()["finished_at"] + 86_400
        again = await ask(bench, "POST", f"{JOBS}/{job}/retry", {"new_seed": True})
        assert (again.status_code, again.json()["status"], again.json()["finished_at"]) == (202, "queued", None)
        record = read_record(bench.client, job)
        assert record is not None
        assert (record.take, record.request.seed == 3) == (2, False)
        assert error_of(await ask(bench, "POST", f"{JOBS}/{job}/retry")) == (409, "job_not_retryable", None)
        assert error_of(await ask(bench, "POST", f"{JOBS}/{job}/retry", {"seed": 1})) == (400, "invalid_value", "seed")

    bench.run(talk)


def test_what_has_succeeded_stays_as_it_is_until_it_is_deleted(bench: Bench) -> None:
    async def talk() -> None:
        job = await create(bench, request={"response_format": "pcm"})
        assert error_of(await ask(bench, "DELETE", f"{JOBS}/{job}")) == (409, "job_not_finished", None)
        early = await ask(bench, "GET", f"{JOBS}/{job}/audio")
        assert (error_of(early), early.headers["retry-after"]) == ((409, "result_not_ready", None), "1")
        succeed(bench, job)
        key = _key(bench, job)
        bench.objects.put_once(f"spill/{job}/1/j/finish/000000000000-000000000010.pcm", b"x" * 20, "audio/pcm")
        assert error_of(await ask(bench, "POST", f"{JOBS}/{job}/cancel")) == (409, "job_already_finished", None)
        assert error_of(await ask(bench, "POST", f"{JOBS}/{job}/retry")) == (409, "job_not_retryable", None)
        gone = await ask(bench, "DELETE", f"{JOBS}/{job}")
        assert gone.json() == {"id": job, "object": "audio.job.deleted", "deleted": True}
        with pytest.raises(ObjectMissing):
            bench.objects.look_up(key)
        assert not list(bench.objects.list_prefix(f"spill/{job}/"))
        assert error_of(await ask(bench, "GET", f"{JOBS}/{job}")) == (404, "job_not_found", None)
        assert (await ask(bench, "GET", JOBS)).json()["data"] == []

    bench.run(talk)


def _key(bench: Bench, job: str) -> str:
    record = read_record(bench.client, job)
    assert record is not None
    assert record.result is not None
    return str(record.result["key"])


def test_a_running_job_goes_by_force_and_its_worker_hears_of_it(bench: Bench) -> None:
    async def talk() -> None:
        job = await create(bench)
        start(bench, job)
        assert (await ask(bench, "DELETE", f"{JOBS}/{job}?force=true")).status_code == 200
        control = bench.client.server("control")
        assert not [key for key in control.scan_iter(f"*{job}*") if b":log:" not in key]
        assert control.hget(bench.client.keys.leased(), "hibari/prosody") == b"0"

    bench.run(talk)


def test_records_leave_the_list_when_their_time_is_over(bench: Bench) -> None:
    async def talk() -> None:
        bench.settings.retention.result_s = 60
        job = await create(bench)
        await ask(bench, "POST", f"{JOBS}/{job}/cancel")
        control, root = bench.client.server("control"), bench.client.keys.root
        assert 3600 < control.ttl(bench.client.keys.job(job)) <= 3660
        assert control.ttl(bench.client.keys.asked(job)) > 3600
        control.zadd(f"{root}:lapses", {f"default/{job}": 1})
        bench.client.run(reap())
        assert control.zcard(f"{root}:jobs:default") == 0

    bench.run(talk)


# -- the result -------------------------------------------------------------------------------------------------------


def test_the_audio_comes_by_redirect_or_as_bytes_and_ranges(bench: Bench) -> None:
    async def talk() -> None:
        job = await create(bench, request={"response_format": "pcm"}, output={"filename": "c 1.pcm"})
        succeed(bench, job)
        away = await ask(bench, "GET", f"{JOBS}/{job}/audio")
        assert away.status_code == 302
        fetched = await asyncio.to_thread(httpx.get, away.headers["location"])
        assert fetched.content == PCM
        assert fetched.headers["content-disposition"] == "attachment; filename*=UTF-8''c%201.pcm"
        here = f"{JOBS}/{job}/audio?redirect=false"
        whole = await ask(bench, "GET", here)
        assert (whole.content, whole.headers["accept-ranges"]) == (PCM, "bytes")
        tag = whole.headers["etag"]
        assert tag == f'"{(await ask(bench, "GET", f"{JOBS}/{job}")).json()["result"]["sha256"]}"'
        part = await ask(bench, "GET", here, Range="bytes=100-199")
        assert (part.status_code, part.content) == (206, PCM[100:200])
        assert part.headers["content-range"] == f"bytes 100-199/{len(PCM)}"
        assert (await ask(bench, "GET", here, Range="bytes=0-1,3-4")).content == PCM
        beyond = await ask(bench, "GET", here, Range=f"bytes={len(PCM)}-")
        assert error_of(beyond) == (416, "range_not_satisfiable", None)
        assert (await ask(bench, "GET", here, Range="bytes=0-9", **{"If-Range": tag})).content == PCM[:10]
        assert (await ask(bench, "GET", here, Range="bytes=0-9", **{"If-Range": '"old"'})).content == PCM
        assert (await ask(bench, "GET", here, **{"If-None-Match": tag})).status_code == 304
        bench.objects.delete_many([_key(bench, job)])
        assert error_of(await ask(bench, "GET", here)) == (410, "result_expired", None)

    bench.run(talk)


def test_a_job_without_audio_says_why(bench: Bench) -> None:
    async def talk() -> None:
        job = await create(bench)
        bench.client.run(end_job(job, "failed", FAILURE))
        answer = await ask(bench, "GET", f"{JOBS}/{job}/audio")
        assert error_of(answer) == (409, "result_not_ready", None)
        assert "it went wrong" in answer.json()["error"]["message"]

    bench.run(talk)


# -- listening --------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def hearing(bench: Bench, path: str, **headers: str) -> AsyncIterator[asyncio.Task[httpx.Response]]:
    task = asyncio.create_task(ask(bench, "GET", path, **headers))
    yield task
    await asyncio.wait({task}, timeout=30)
    assert task.done()


def test_a_stream_waits_for_its_first_byte_and_begins_anywhere(bench: Bench) -> None:
    async def talk() -> None:
        job = await create(bench)
        stream = f"{JOBS}/{job}/stream"
        async with (
            hearing(bench, stream) as whole,
            hearing(bench, f"{stream}?from_frame=5000&format=wav") as later,
            hearing(bench, stream, **{"Last-Event-ID": "7"}) as resumed,
            hearing(bench, f"{stream}?from_frame={FRAMES}") as at_end,
            hearing(bench, f"{stream}?from_frame={FRAMES + 1}") as beyond,
        ):
            done, _ = await asyncio.wait({whole, later, resumed}, timeout=0.3)
            assert not done
            out = open_log(bench, job)
            at = 0
            for first in range(0, len(PCM), 5000):
                at = write(bench, out, at, PCM[first : first + 5000])
            bench.client.run(seal(out, TOKEN, json.dumps({"frames": FRAMES}), FRAMES))
        assert whole.result().content == PCM
        told = whole.result().headers
        assert (told["x-start-frame"], told["content-type"], told["x-sample-rate"]) == ("0", "audio/pcm", "24000")
        assert later.result().content[:4] == b"RIFF"
        assert later.result().content[44:] == PCM[10_000:]
        told = later.result().headers
        assert (told["x-start-frame"], told["content-type"]) == ("5000", "audio/wav")
        assert resumed.result().content == PCM[14:]
        assert (at_end.result().status_code, at_end.result().content) == (200, b"")
        assert error_of(beyond.result()) == (416, "range_not_satisfiable", "from_frame")

    bench.run(talk)


@pytest.mark.parametrize("audio_format", ["pcm", "wav", "flac"])
def test_what_has_left_the_log_comes_from_the_stored_result(bench: Bench, audio_format: str) -> None:
    async def talk() -> None:
        job = await create(bench, request={"response_format": audio_format})
        making = encoder(audio_format, 24_000, 1, streaming=False, total_frames=FRAMES)  # type: ignore[arg-type]
        body = making.feed(PCM) + making.finish()
        succeed(bench, job, audio_format, body)
        for frame in (0, 1, 4321, FRAMES - 1, FRAMES):
            heard = await ask(bench, "GET", f"{JOBS}/{job}/stream?from_frame={frame}")
            assert heard.content == PCM[2 * frame :]
        path = f"{JOBS}/{job}/stream"
        beyond = await ask(bench, "GET", f"{path}?from_frame={FRAMES + 1}")
        assert error_of(beyond) == (416, "range_not_satisfiable", "from_frame")
        beyond = await ask(bench, "GET", path, **{"Last-Event-ID": str(FRAMES + 1)})
        assert error_of(beyond) == (416, "range_not_satisfiable", "Last-Event-ID")
        refused = await ask(bench, "GET", path, Accept="text/event-stream;q=0, audio/*")
        assert refused.headers["content-type"] == "audio/pcm"

    bench.run(talk)


def test_what_only_a_lossy_result_holds_is_gone_unless_it_was_spilled(bench: Bench) -> None:
    async def talk() -> None:
        job = await create(bench, request={"response_format": "mp3"})
        succeed(bench, job, "mp3", b"no samples")
        assert error_of(await ask(bench, "GET", f"{JOBS}/{job}/stream")) == (410, "stream_expired", None)
        bench.farm.listening.spill.write(out_log(job, 1), 0, FRAMES, PCM)
        heard = await ask(bench, "GET", f"{JOBS}/{job}/stream?from_frame=100")
        assert heard.content == PCM[200:]

    bench.run(talk)


def test_what_was_spilled_and_what_is_in_the_log_join_without_a_seam(bench: Bench) -> None:
    async def talk() -> None:
        job = await create(bench)
        out = open_log(bench, job)
        at = write(bench, out, 0, PCM[:10_000])
        at = write(bench, out, at, PCM[10_000:20_000])
        write(bench, out, at, PCM[20_000:])
        bench.farm.listening.spill.write(out, 0, 10_000, PCM[:20_000])
        bench.client.run(trim(out, 10_000))
        bench.client.run(seal(out, TOKEN, json.dumps({"frames": FRAMES}), FRAMES))
        for frame in (0, 4999, 9999, 10_000, 10_001):
            assert (await ask(bench, "GET", f"{JOBS}/{job}/stream?from_frame={frame}")).content == PCM[2 * frame :]

    bench.run(talk)


def events_of(text: str) -> list[tuple[str | None, dict[str, Any]]]:
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if line and not line.startswith(":"))
        if fields:
            data = json.loads(fields["data"])
            assert data["type"] == fields["event"]
            found.append((fields.get("id"), data))
    return found


def test_events_tell_the_job_s_way_and_audio_with_ids_to_go_on_from(bench: Bench) -> None:
    async def talk() -> None:
        job = await create(bench)
        accept = {"Accept": "text/event-stream"}
        async with (
            hearing(bench, f"{JOBS}/{job}/stream", **accept) as stream,
            hearing(bench, f"{JOBS}/{job}/events") as events,
        ):
            await asyncio.wait({stream, events}, timeout=0.5)
            start(bench, job)
            out = open_log(bench, job)
            write(bench, out, 0, PCM)
            await asyncio.wait({stream}, timeout=0.5)
            bench.client.run(seal(out, TOKEN, json.dumps({"frames": FRAMES}), FRAMES))
            await asyncio.wait({stream}, timeout=30)
            bench.client.run(end_job(job, "expired", '{"code": "deadline_exceeded", "message": "late"}'))
        came = events_of(stream.result().text)
        assert [data["status"] for _, data in came if data["type"] == "job.status"] == ["queued", "running"]
        assert came[0][0] is None
        deltas = [(where, data) for where, data in came if data["type"] == "speech.audio.delta"]
        assert deltas[-1][0] == str(FRAMES)
        assert came[-1][1]["type"] == "speech.audio.done"
        assert came[-1][1]["job_id"] == job
        told = events_of(events.result().text)
        assert (told[0][1]["status"], told[-1][1]["status"]) == ("queued", "expired")
        assert told[-1][1]["error"]["code"] == "deadline_exceeded"

    bench.run(talk)


def test_a_stream_of_a_cancelled_job_ends_with_an_error(bench: Bench) -> None:
    async def talk() -> None:
        job = await create(bench)
        async with (
            hearing(bench, f"{JOBS}/{job}/stream") as raw,
            hearing(bench, f"{JOBS}/{job}/stream", Accept="text/event-stream") as sse,
        ):
            await asyncio.wait({raw}, timeout=0.2)
            await ask(bench, "POST", f"{JOBS}/{job}/cancel")
        assert error_of(raw.result()) == (409, "result_not_ready", None)
        assert events_of(sse.result().text)[-1][1]["error"]["code"] == "result_not_ready"
        assert error_of(await ask(bench, "GET", f"{JOBS}/{job}/stream")) == (409, "result_not_ready", None)
        bad = await ask(bench, "GET", f"{JOBS}/{job}/stream", **{"Last-Event-ID": "x"})
        assert error_of(bad) == (400, "invalid_value", "Last-Event-ID")

    bench.run(talk)
