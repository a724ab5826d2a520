"""OpenAI batches over the API in this process, on the real servers. The tests play the workers' part, and Celery's."""

import asyncio
import base64
import json
import re
import time
from typing import Any

import httpx
import pytest

from speechmill.api.batches import finish, prepare
from speechmill.api.batches.tending import tend
from speechmill.configs.settings import ApiKey, KeyLimits
from speechmill.infra.errors import StoreUnavailable
from speechmill.infra.groups import job_of
from speechmill.infra.keys import new_id
from speechmill.infra.webhooks import new_endpoint, put_endpoint

from .bulk import PCM, work
from .jobs import ask, error_of
from .test_farm import Bench

BATCHES = "/v1/batches"
URL = "/v1/audio/speech"


def line(custom_id: str, text: str = "Hi.", **body: Any) -> dict[str, Any]:
    body = {"input": text, "response_format": "pcm", **body}
    return {"custom_id": custom_id, "method": "POST", "url": URL, "body": body}


async def upload(bench: Bench, content: bytes, purpose: str = "batch", **headers: str) -> str:
    transport = httpx.ASGITransport(bench.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test", timeout=30, verify=False) as client:
        files = {"file": ("in.jsonl", content)}
        answer = await client.post("/v1/files", files=files, data={"purpose": purpose}, headers=headers)
    return str(answer.json()["id"])


async def create(bench: Bench, *lines: Any, headers: dict[str, str] | None = None, **fields: Any) -> str:
    content = b"\n".join(one if isinstance(one, bytes) else json.dumps(one).encode() for one in lines)
    file = await upload(bench, content, **(headers or {}))
    body = {"input_file_id": file, "endpoint": URL, "completion_window": "24h", **fields}
    answer = await ask(bench, "POST", BATCHES, body, **(headers or {}))
    assert (answer.status_code, answer.json()["status"]) == (200, "validating"), answer.text
    return str(answer.json()["id"])


async def shown(bench: Bench, batch: str) -> dict[str, Any]:
    return dict((await ask(bench, "GET", f"{BATCHES}/{batch}")).json())


async def content_of(bench: Bench, file: str | None) -> list[dict[str, Any]]:
    if file is None:
        return []
    answer = await ask(bench, "GET", f"/v1/files/{file}/content")
    return [json.loads(text) for text in answer.text.splitlines()]


def test_a_batch_goes_from_its_file_to_its_output(bench: Bench) -> None:
    async def talk() -> None:
        batch = await create(bench, line("a"), b"", line("b", voice="nobody"), line("c", "Fail."), metadata={"k": "v"})
        await tend(bench.farm, batch)
        begun = await shown(bench, batch)
        assert (begun["status"], begun["metadata"], begun["errors"]) == ("in_progress", {"k": "v"}, None)
        assert begun["request_counts"] == {"total": 3, "completed": 0, "failed": 1}
        work(bench, lambda text: text == "Fail.")
        assert (await shown(bench, batch))["status"] == "finalizing"
        await tend(bench.farm, batch)
        done = await shown(bench, batch)
        assert (done["status"], done["request_counts"]) == ("completed", {"total": 3, "completed": 1, "failed": 2})
        times = [done[f"{name}_at"] for name in ("created", "in_progress", "finalizing", "completed")]
        assert times == sorted(times)
        assert (done["failed_at"], done["expired_at"]) == (None, None)

        (spoken,) = await content_of(bench, done["output_file_id"])
        assert (spoken["custom_id"], spoken["error"], spoken["response"]["status_code"]) == ("a", None, 200)
        assert (spoken["id"][:10], spoken["response"]["request_id"][:4]) == ("batch_req_", "req_")
        body = spoken["response"]["body"]
        assert "audio_data" not in body
        audio = await ask(bench, "GET", f"/v1/files/{body['file_id']}/content")
        assert audio.content == PCM
        assert (await asyncio.to_thread(httpx.get, body["url"])).content == PCM
        file = (await ask(bench, "GET", f"/v1/files/{body['file_id']}")).json()
        assert (file["purpose"], file["bytes"]) == ("batch_output", len(PCM))
        assert re.fullmatch(r"job_\w+\.pcm", file["filename"])

        errors = {one["custom_id"]: one["response"] for one in await content_of(bench, done["error_file_id"])}
        assert {name: response["status_code"] for name, response in errors.items()} == {"b": 400, "c": 500}
        assert errors["b"]["body"]["error"]["code"] == "invalid_voice"
        assert errors["b"]["body"]["error"]["param"] == "voice"

    bench.run(talk)


def test_short_audio_is_inlined_on_request(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    async def talk() -> None:
        for most, is_inline in ((len(PCM), True), (len(PCM) - 1, False)):
            monkeypatch.setattr(finish, "INLINE_BYTES", most)
            batch = await create(bench, line("a"), metadata={"audio_delivery": "inline"})
            await tend(bench.farm, batch)
            work(bench)
            await tend(bench.farm, batch)
            (spoken,) = await content_of(bench, (await shown(bench, batch))["output_file_id"])
            audio = spoken["response"]["body"].get("audio_data")
            assert audio == (base64.b64encode(PCM).decode() if is_inline else None)

    bench.run(talk)


BAD_LINES: list[tuple[Any, str, str | None]] = [
    (b"{nonsense", "invalid_json", None),
    (b"\xff", "invalid_json", None),
    (b"[]", "invalid_json", None),
    ({**line("b"), "method": "GET"}, "invalid_value", "method"),
    ({**line("b"), "url": "/v1/embeddings"}, "invalid_value", "url"),
    ({"method": "POST", "url": URL, "body": {}}, "missing_required_parameter", "custom_id"),
    (line(""), "invalid_value", "custom_id"),
    (line("x" * 513), "invalid_value", "custom_id"),
    (line("a"), "invalid_value", "custom_id"),
    ({**line("b"), "body": "Hi."}, "invalid_type", "body"),
    (line("b", stream=True), "unsupported_parameter", "body.stream"),
    (line("c", stream_format="sse"), "unsupported_parameter", "body.stream_format"),
]


def test_a_file_that_is_none_of_a_batch_fails_it_and_every_fault_is_told(bench: Bench) -> None:
    async def talk() -> None:
        batch = await create(bench, line("a"), *(bad for bad, _, _ in BAD_LINES))
        await tend(bench.farm, batch)
        failed = await shown(bench, batch)
        assert (failed["status"], failed["output_file_id"]) == ("failed", None)
        assert failed["failed_at"] >= failed["created_at"]
        told = [(error["line"], error["code"], error["param"]) for error in failed["errors"]["data"]]
        assert told == [(number, code, param) for number, (_, code, param) in enumerate(BAD_LINES, 2)]
        assert work(bench) == []

    bench.run(talk)


def test_empty_files_and_long_ones_fail_too(bench: Bench) -> None:
    bench.settings.limits.batch_lines = 2

    async def talk() -> None:
        for lines, number, code in (([b" "], None, "invalid_value"), ([line(c) for c in "abc"], 3, "too_many_items")):
            batch = await create(bench, *lines)
            await tend(bench.farm, batch)
            (error,) = (await shown(bench, batch))["errors"]["data"]
            assert (error["line"], error["code"]) == (number, code)

    bench.run(talk)


def test_what_is_no_batch_is_refused(bench: Bench) -> None:
    async def talk() -> None:
        good = {"input_file_id": await upload(bench, b"{}"), "endpoint": URL, "completion_window": "24h"}
        other = await upload(bench, b"{}", "user_data")
        for change, status, code, param in (
            ({"completion_window": "1h"}, 400, "invalid_value", "completion_window"),
            ({"endpoint": "/v1/responses"}, 400, "invalid_value", "endpoint"),
            ({"input_file_id": None}, 400, "invalid_type", "input_file_id"),
            ({"input_file_id": "file-01JEXAMPLE"}, 404, "file_not_found", "input_file_id"),
            ({"input_file_id": other}, 400, "invalid_value", "input_file_id"),
            ({"metadata": {"a": 1}}, 400, "invalid_type", "metadata"),
            ({"output_expires_after": {"anchor": "now"}}, 400, "invalid_value", "output_expires_after.anchor"),
            ({"output_expires_after": {"anchor": "created_at", "seconds": 1}}, 400, "invalid_value", None),
        ):
            answer = await ask(bench, "POST", BATCHES, {**good, **change})
            assert error_of(answer)[:2] == (status, code)
            assert answer.json()["error"]["param"] == (param or "output_expires_after.seconds")
        assert (await ask(bench, "GET", BATCHES)).json()["data"] == []
        assert error_of(await ask(bench, "GET", f"{BATCHES}/batch_x")) == (404, "batch_not_found", None)

    bench.run(talk)


def test_batches_are_listed_newest_first_page_by_page(bench: Bench) -> None:
    async def talk() -> None:
        made = [await create(bench, line("a")) for _ in range(3)]
        page = (await ask(bench, "GET", f"{BATCHES}?limit=2")).json()
        assert [one["id"] for one in page["data"]] == sorted(made, reverse=True)[:2]
        assert page["has_more"]
        rest = (await ask(bench, "GET", f"{BATCHES}?after={page['last_id']}")).json()
        assert [one["id"] for one in rest["data"]] == [min(made)]
        assert not rest["has_more"]
        for after in ("x", "", f"batch_{new_id('job').removeprefix('job_')}"):
            wrong = await ask(bench, "GET", f"{BATCHES}?after={after}")
            assert error_of(wrong) == (400, "invalid_cursor", "after")

    bench.run(talk)


@pytest.mark.parametrize("is_read", [False, True])
def test_a_cancelled_batch_keeps_what_is_spoken(bench: Bench, is_read: bool) -> None:
    bench.settings.limits.bulk_window = 2

    async def talk() -> None:
        batch = await create(bench, *(line(name) for name in "abcde"))
        if is_read:
            await tend(bench.farm, batch)
            work(bench)
            await tend(bench.farm, batch)
        cancelling = await ask(bench, "POST", f"{BATCHES}/{batch}/cancel")
        assert (cancelling.status_code, cancelling.json()["status"]) == (200, "cancelling")
        await tend(bench.farm, batch)
        done = await shown(bench, batch)
        assert done["status"] == "cancelled"
        output = await content_of(bench, done["output_file_id"])
        errors = await content_of(bench, done["error_file_id"])
        if is_read:
            assert {one["custom_id"] for one in output} == {"a", "b"}
            assert {(one["custom_id"], one["error"]["code"]) for one in errors} == {
                (name, "batch_cancelled") for name in "cde"
            }
        else:
            assert output + errors == []
        again = await ask(bench, "POST", f"{BATCHES}/{batch}/cancel")
        assert (again.status_code, again.json()["status"]) == (200, "cancelled")

    bench.run(talk)


def test_lines_that_are_not_run_within_a_day_expire(bench: Bench) -> None:
    bench.settings.limits.bulk_window = 1

    async def talk() -> None:
        batch = await create(bench, line("a"), line("b"), line("c"))
        await tend(bench.farm, batch)
        work(bench)
        bench.client.server("control").hincrby(bench.client.keys.group(batch), "began", -86_401_000)
        await tend(bench.farm, batch)
        done = await shown(bench, batch)
        assert (done["status"], done["request_counts"]) == ("expired", {"total": 3, "completed": 1, "failed": 2})
        errors = await content_of(bench, done["error_file_id"])
        assert {(one["custom_id"], one["error"]["code"]) for one in errors} == {
            ("b", "batch_expired"),
            ("c", "batch_expired"),
        }
        late = await create(bench, line("a"))
        bench.client.server("control").hincrby(bench.client.keys.group(late), "began", -86_401_000)
        await tend(bench.farm, late)
        assert (await shown(bench, late))["status"] == "expired"

    bench.run(talk)


def test_whoever_dies_in_any_step_another_goes_on_and_every_line_comes_out_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step that fails at its end leaves behind what one leaves that is killed there."""

    def dies(*_: object) -> None:
        raise StoreUnavailable("gone")

    async def talk() -> None:
        batch = await create(bench, *(line(str(number)) for number in range(7)))
        for module, name in ((prepare, "begin_batch"), (finish, "end_batch")):
            with monkeypatch.context() as patched:
                patched.setattr(module, name, dies)
                with pytest.raises(StoreUnavailable):
                    await tend(bench.farm, batch)
            await tend(bench.farm, batch)
            await tend(bench.farm, batch)
            work(bench)
        done = await shown(bench, batch)
        assert done["request_counts"] == {"total": 7, "completed": 7, "failed": 0}
        found = [one["custom_id"] for one in await content_of(bench, done["output_file_id"])]
        assert sorted(found) == [str(number) for number in range(7)]
        files = (await ask(bench, "GET", "/v1/files?purpose=batch_output")).json()["data"]
        assert len(files) == 7 + 1

    bench.run(talk)


def test_the_end_of_a_batch_is_told_and_its_lines_are_no_visible_group(bench: Bench) -> None:
    endpoint = new_endpoint("default", "n", "https://example.com/", ("batch.completed",), 1.0)
    assert bench.client.run(put_endpoint(endpoint)) == "ok"

    async def talk() -> None:
        batch = await create(bench, line("a"))
        await tend(bench.farm, batch)
        work(bench)
        await tend(bench.farm, batch)
        entries = bench.client.server("control").xrange(bench.client.keys.outbox())
        told = [json.loads(entry[b"data"]) for _, entry in entries if entry[b"type"] == b"batch.completed"]
        assert [(one["id"], one["status"]) for one in told] == [(batch, "completed")]
        hidden = await ask(bench, "GET", f"/v1/audio/job_groups/{batch}")
        assert error_of(hidden) == (404, "job_not_found", None)

    bench.run(talk)


def test_the_lines_of_a_batch_are_no_jobs_of_their_own(bench: Bench) -> None:
    endpoint = new_endpoint("default", "n", "https://example.com/", ("audio.job.succeeded",), 1.0)
    assert bench.client.run(put_endpoint(endpoint)) == "ok"

    async def talk() -> None:
        batch = await create(bench, line("a"))
        await tend(bench.farm, batch)
        job = job_of(batch, 1)
        assert (await ask(bench, "GET", "/v1/audio/jobs")).json()["data"] == []
        for method, path in (("GET", job), ("DELETE", f"{job}?force=true"), ("POST", f"{job}/cancel")):
            hidden = await ask(bench, method, f"/v1/audio/jobs/{path}")
            assert error_of(hidden) == (404, "job_not_found", None)
        work(bench)
        await tend(bench.farm, batch)
        assert (await shown(bench, batch))["request_counts"]["completed"] == 1
        entries = bench.client.server("control").xrange(bench.client.keys.outbox())
        assert {entry[b"type"] for _, entry in entries} == {b"batch.completed"}
        assert bench.client.server("control").ttl(bench.client.keys.job(job)) <= finish.LINGER_S

    bench.run(talk)


def test_a_batch_waits_for_the_rates_of_its_key(bench: Bench) -> None:
    bench.settings.auth.enabled = True
    limits = KeyLimits(requests_per_minute=2, characters_per_minute=100)
    bench.settings.auth.keys = [ApiKey(key="sk-a", name="a", project="a", limits=limits)]
    key = {"Authorization": "Bearer sk-a"}

    async def talk() -> None:
        first = await create(bench, line("a", "x" * 90), headers=key)
        second = await create(bench, line("a", "x" * 400), headers=key)
        file = await upload(bench, json.dumps(line("a")).encode(), **key)
        body = {"input_file_id": file, "endpoint": URL, "completion_window": "24h"}
        assert error_of(await ask(bench, "POST", BATCHES, body, **key)) == (429, "rate_limit_exceeded", None)
        await tend(bench.farm, first)
        await tend(bench.farm, second)
        states = [(await ask(bench, "GET", f"{BATCHES}/{one}", **key)).json()["status"] for one in (first, second)]
        assert states == ["in_progress", "validating"]
        server, keys = bench.client.server("control"), bench.client.keys
        assert server.zscore(f"{keys.root}:tending", second) > time.time() * 1000 + 30_000
        rates = server.keys(f"{keys.root}:rate:*")
        server.delete(*rates)  # as if minutes had gone by
        await tend(bench.farm, second)
        assert (await ask(bench, "GET", f"{BATCHES}/{second}", **key)).json()["status"] == "in_progress"
        assert float(server.hget(rates[0], "characters") or 0) < -200  # what follows waits for longer

    bench.run(talk)


def test_a_batch_that_its_key_cannot_pay_for_fails(bench: Bench) -> None:
    bench.settings.auth.enabled = True
    limits = KeyLimits(characters_per_day=10)
    bench.settings.auth.keys = [ApiKey(key="sk-a", name="a", project="a", limits=limits)]
    key = {"Authorization": "Bearer sk-a"}

    async def talk() -> None:
        for text, status in (("x" * 11, "failed"), ("x" * 10, "in_progress")):
            batch = await create(bench, line("a", text), line("b", "y" * 20, voice="nobody"), headers=key)
            await tend(bench.farm, batch)
            now = (await ask(bench, "GET", f"{BATCHES}/{batch}", **key)).json()
            assert now["status"] == status
            if status == "failed":
                assert now["errors"]["data"][0]["code"] == "quota_exceeded"

    bench.run(talk)
