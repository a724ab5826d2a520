"""Jobs over the API in this process, on the real servers. No worker runs: the tests play its part."""

import asyncio
from typing import Any

import httpx
import pytest

from speechmill.infra.jobs import read_record
from speechmill.infra.keys import new_id
from speechmill.infra.messages import SpeechRequest, Submission
from speechmill.infra.objects import ObjectMissing
from speechmill.infra.protocol import (
    Limits,
    claim,
    end_job,
    handback,
    reap,
    submit,
)

from .jobs import FAILURE, JOBS, PCM, ask, create, error_of, start, succeed
from .test_farm import Bench

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
