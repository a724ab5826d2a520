"""Groups of jobs over the API in this process, on the real servers. The tests play the workers' part, and Celery's."""

import asyncio
import io
import json
import zipfile
from typing import Any

import httpx
import pytest

from speechmill.api.batches.tending import tend
from speechmill.configs.settings import ApiKey, KeyLimits
from speechmill.infra.groups import job_of
from speechmill.infra.webhooks import new_endpoint, put_endpoint

from .bulk import FRAMES, PCM, work
from .jobs import ask, error_of
from .test_farm import Bench

JOBS = "/v1/audio/jobs"
HI = {"input": "Hi."}


async def create(bench: Bench, count: int, **fields: Any) -> dict[str, Any]:
    requests = [{"custom_id": f"c-{number}", "request": {"input": f"Number {number}."}} for number in range(count)]
    body = {"defaults": {"response_format": "pcm"}, "requests": requests, **fields}
    answer = await ask(bench, "POST", JOBS, body)
    assert answer.status_code == 202, answer.text
    assert answer.headers["location"] == f"/v1/audio/job_groups/{answer.json()['id']}"
    return dict(answer.json())


async def group(bench: Bench, group_id: str, step: str = "", method: str = "GET") -> httpx.Response:
    return await ask(bench, method, f"/v1/audio/job_groups/{group_id}{step}")


async def counts(bench: Bench, group_id: str) -> dict[str, int]:
    """Those that are not 0."""
    return {name: count for name, count in (await group(bench, group_id)).json()["counts"].items() if count}


async def lines(bench: Bench, group_id: str, query: str = "") -> list[dict[str, Any]]:
    answer = await group(bench, group_id, f"/results{query}")
    assert answer.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in answer.text.splitlines()]


def jobs_of(told: list[dict[str, Any]]) -> list[str]:
    """What tells two lines apart: the links in them are signed anew each time."""
    return [line["job_id"] for line in told]


async def send_lines(bench: Bench, content: bytes) -> httpx.Response:
    transport = httpx.ASGITransport(bench.app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://test", timeout=30, verify=False) as client:
        return await client.post(JOBS, content=content, headers={"Content-Type": "application/x-ndjson"})


def test_a_group_goes_from_its_items_to_results_and_an_archive(bench: Bench) -> None:
    async def talk() -> None:
        made = await create(bench, 3)
        assert (made["object"], made["status"], made["rejected"]) == ("audio.job_group", "in_progress", [])
        assert await counts(bench, made["id"]) == {"total": 3, "queued": 3}
        listed = (await ask(bench, "GET", f"{JOBS}?group_id={made['id']}")).json()["data"]
        assert {job["custom_id"] for job in listed} == {"c-0", "c-1", "c-2"}
        assert {job["group_id"] for job in listed} == {made["id"]}
        work(bench)
        done = (await group(bench, made["id"])).json()
        assert done["status"] == "completed"
        assert done["finished_at"] >= done["created_at"]
        assert await counts(bench, made["id"]) == {"total": 3, "succeeded": 3}
        found = await lines(bench, made["id"])
        assert [line["custom_id"] for line in found] == ["c-0", "c-1", "c-2"]
        body = found[0]["response"]["body"]
        assert (body["object"], body["format"], body["bytes"]) == ("audio.speech", "pcm", len(PCM))
        assert (await asyncio.to_thread(httpx.get, body["url"])).content == PCM
        archive = await group(bench, made["id"], "/archive")
        with zipfile.ZipFile(io.BytesIO(archive.content)) as unpacked:
            assert unpacked.testzip() is None
            assert set(unpacked.namelist()) == {"c-0.pcm", "c-1.pcm", "c-2.pcm", "manifest.json"}
            assert unpacked.read("c-1.pcm") == PCM
            manifest = json.loads(unpacked.read("manifest.json"))
        assert manifest["files"][0] == {"file": "c-0.pcm", "job_id": found[0]["job_id"], "custom_id": "c-0"}

    bench.run(talk)


def test_results_go_on_behind_the_last_that_is_known(bench: Bench) -> None:
    async def talk() -> None:
        made = await create(bench, 3)
        work(bench)
        known = [line["job_id"] for line in await lines(bench, made["id"])]
        for at, job in enumerate(known):
            behind = await lines(bench, made["id"], f"?after={job}")
            assert [line["job_id"] for line in behind] == known[at + 1 :]
        for wrong in ("job_01JEXAMPLE", "", "3", "1.x", job_of(made["id"], 4)):
            answer = await group(bench, made["id"], f"/results?after={wrong}")
            assert error_of(answer) == (400, "invalid_cursor", "after")

    bench.run(talk)


def test_a_reader_of_results_misses_nothing_when_the_job_it_stands_behind_is_sent_again(bench: Bench) -> None:
    async def talk() -> None:
        made = await create(bench, 3)
        work(bench, lambda text: "0" in text)
        first = await lines(bench, made["id"])
        failed = next(line for line in first if line["custom_id"] == "c-0")
        at = first.index(failed)
        await group(bench, made["id"], "/retry", "POST")
        for after in (failed["job_id"], failed["cursor"]):
            assert jobs_of(await lines(bench, made["id"], f"?after={after}")) == jobs_of(first[at + 1 :])
        work(bench)
        for after in (failed["job_id"], failed["cursor"]):
            behind = await lines(bench, made["id"], f"?after={after}")
            assert [line["custom_id"] for line in behind] == [*(line["custom_id"] for line in first[at + 1 :]), "c-0"]
        assert await lines(bench, made["id"], f"?after={behind[-1]['cursor']}") == []

    bench.run(talk)


def test_a_bad_item_refuses_all_or_is_skipped(bench: Bench) -> None:
    requests = [
        {"custom_id": "a", "request": HI},
        {"custom_id": "b", "request": {"input": ""}},
        {"custom_id": "a", "request": HI},
        {"custom_id": "d", "request": {**HI, "stream": True}},
        "nonsense",
    ]

    async def talk() -> None:
        refused = await ask(bench, "POST", JOBS, {"requests": requests})
        assert error_of(refused) == (400, "invalid_value", "requests")
        told = [(bad["index"], bad["custom_id"], bad["error"]["code"]) for bad in refused.json()["error"]["details"]]
        assert told == [
            (1, "b", "empty_input"),
            (2, "a", "invalid_value"),
            (3, "d", "unsupported_parameter"),
            (4, None, "invalid_type"),
        ]
        assert refused.json()["error"]["details"][0]["error"]["param"] == "request.input"
        assert (await ask(bench, "GET", JOBS)).json()["data"] == []
        skipped = (await ask(bench, "POST", JOBS, {"requests": requests, "on_invalid": "skip"})).json()
        assert (skipped["counts"]["total"], skipped["counts"]["rejected"], skipped["counts"]["queued"]) == (5, 4, 1)
        assert [bad["index"] for bad in skipped["rejected"]] == [1, 2, 3, 4]
        work(bench)
        assert (await group(bench, skipped["id"])).json()["status"] == "completed"

    bench.run(talk)


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({"requests": []}, "invalid_value", "requests"),
        ({"requests": {}}, "invalid_type", "requests"),
        ({"defaults": {}}, "missing_required_parameter", "requests"),
        ({"requests": [{"request": HI}] * 4}, "too_many_items", "requests"),
        ({"requests": [{"request": HI}], "on_invalid": "never"}, "invalid_value", "on_invalid"),
        ({"requests": [{"request": HI}], "defaults": 1}, "invalid_type", "defaults"),
    ],
)
def test_a_body_that_is_no_group_is_refused(bench: Bench, body: Any, code: str, param: str) -> None:
    bench.settings.limits.bulk_items = 3

    async def talk() -> None:
        assert error_of(await ask(bench, "POST", JOBS, body)) == (400, code, param)

    bench.run(talk)


def test_lines_of_json_are_a_group_too(bench: Bench) -> None:
    async def talk() -> None:
        good = b'{"custom_id":"a","request":{"input":"One."}}\n\n{"custom_id":"b","request":{"input":"Two."}}'
        made = await send_lines(bench, good)
        assert made.status_code == 202
        assert await counts(bench, made.json()["id"]) == {"total": 2, "queued": 2}
        bad = await send_lines(bench, good + b"\n{nonsense\n")
        assert error_of(bad) == (400, "invalid_value", None)
        assert [(one["index"], one["error"]["code"]) for one in bad.json()["error"]["details"]] == [(2, "invalid_json")]
        assert error_of(await send_lines(bench, b"\n")) == (400, "invalid_value", None)

    bench.run(talk)


def test_a_long_group_is_submitted_a_window_at_a_time_and_each_line_once(bench: Bench) -> None:
    bench.settings.limits.bulk_window = 4

    async def talk() -> None:
        made = await create(bench, 10)
        spoken: list[str] = []
        while (await group(bench, made["id"])).json()["status"] == "in_progress":
            assert bench.client.server("control").scard(bench.client.keys.open_jobs(made["id"])) <= 4
            spoken += work(bench)
            for _ in range(2):  # whoever tends it twice submits nothing twice
                await tend(bench.farm, made["id"])
        assert spoken == [job_of(made["id"], line) for line in range(1, 11)]
        assert await counts(bench, made["id"]) == {"total": 10, "succeeded": 10}

    bench.run(talk)


def test_a_group_leaves_half_of_the_queue_to_others(bench: Bench) -> None:
    bench.settings.limits.queue_depth = 6

    async def talk() -> None:
        made = await create(bench, 10)
        assert bench.client.server("control").zcard(bench.client.keys.queued("hibari", "normal")) == 3
        assert (await ask(bench, "POST", JOBS, {"request": HI})).status_code == 202
        assert await counts(bench, made["id"]) == {"total": 10, "queued": 10}

    bench.run(talk)


def test_what_is_left_of_a_group_is_cancelled(bench: Bench) -> None:
    bench.settings.limits.bulk_window = 4

    async def talk() -> None:
        made = await create(bench, 10)
        work(bench)
        await tend(bench.farm, made["id"])
        cancelled = await group(bench, made["id"], "/cancel", "POST")
        assert (cancelled.status_code, cancelled.json()["status"]) == (200, "cancelled")
        assert await counts(bench, made["id"]) == {"total": 10, "succeeded": 4, "cancelled": 6}
        assert (await group(bench, made["id"], "/cancel", "POST")).status_code == 200
        await tend(bench.farm, made["id"])
        assert work(bench) == []
        told = await lines(bench, made["id"])
        assert sorted(line["custom_id"] for line in told) == [f"c-{number}" for number in range(10)]
        assert {line["error"]["code"] for line in told[4:]} == {"job_cancelled"}
        for at, line in enumerate(told):
            for after in (line["cursor"], line["job_id"]):
                assert jobs_of(await lines(bench, made["id"], f"?after={after}")) == jobs_of(told[at + 1 :])

    bench.run(talk)


def test_a_cancelled_group_is_resumed_with_all_of_its_time_before_it(bench: Bench) -> None:
    bench.settings.limits.bulk_window = 4

    async def talk() -> None:
        made = await create(bench, 10)
        bench.client.server("control").hincrby(bench.client.keys.group(made["id"]), "began", -86_000_000)
        work(bench)
        await tend(bench.farm, made["id"])
        await group(bench, made["id"], "/cancel", "POST")
        known = (await lines(bench, made["id"]))[3]["cursor"]
        path = f"/v1/audio/job_groups/{made['id']}/retry"
        wrong = await ask(bench, "POST", path, {"states": ["succeeded"]})
        assert error_of(wrong)[:2] == (400, "invalid_value")
        assert error_of(await ask(bench, "POST", path, {"states": ["failed"]}))[1] == "job_not_retryable"
        again = await ask(bench, "POST", path, {"states": ["cancelled"]})
        assert (again.status_code, again.json()["status"]) == (202, "in_progress")
        while work(bench):
            await tend(bench.farm, made["id"])
        assert await counts(bench, made["id"]) == {"total": 10, "succeeded": 10}
        assert (await group(bench, made["id"])).json()["status"] == "completed"
        behind = await lines(bench, made["id"], f"?after={known}")
        assert sorted(line["custom_id"] for line in behind) == [f"c-{number}" for number in range(4, 10)]

    bench.run(talk)


def test_a_job_of_a_group_that_is_sent_again_has_its_whole_deadline(bench: Bench) -> None:
    async def talk() -> None:
        bench.settings.limits.bulk_window = 1
        made = await create(bench, 2)
        bench.client.server("control").hincrby(bench.client.keys.group(made["id"]), "began", -86_000_000)
        work(bench)
        await tend(bench.farm, made["id"])  # the second line has 400 s left
        live = bench.client.keys.live()
        job = job_of(made["id"], 2)
        scores = [bench.client.server("control").zscore(live, job)]
        work(bench, lambda _: True)
        await ask(bench, "POST", f"{JOBS}/{job}/retry")
        scores.append(bench.client.server("control").zscore(live, job))
        assert scores[1] - scores[0] == pytest.approx(86_000_000, abs=60_000)

    bench.run(talk)


def test_audio_that_nobody_waits_for_counts_in_its_keys_quota_when_it_is_made(bench: Bench) -> None:
    bench.settings.auth.enabled = True
    limits = KeyLimits(audio_seconds_per_day=1)
    bench.settings.auth.keys = [ApiKey(key="sk-a", name="a", project="a", limits=limits)]
    key = {"Authorization": "Bearer sk-a"}
    many = 1 + 1000 // (FRAMES // 24)  # milliseconds

    async def talk() -> None:
        for number in range(many):
            answer = await ask(bench, "POST", JOBS, {"requests": [{"request": HI}]}, **key)
            assert answer.status_code == 202, number
            work(bench)
        refused = await ask(bench, "POST", JOBS, {"requests": [{"request": HI}]}, **key)
        assert error_of(refused) == (429, "quota_exceeded", None)

    bench.run(talk)


def test_a_group_that_has_ended_cannot_be_cancelled(bench: Bench) -> None:
    async def talk() -> None:
        made = await create(bench, 1)
        work(bench)
        answer = await group(bench, made["id"], "/cancel", "POST")
        assert error_of(answer) == (409, "job_already_finished", None)

    bench.run(talk)


def test_only_what_failed_is_spoken_again(bench: Bench) -> None:
    async def talk() -> None:
        made = await create(bench, 4)
        work(bench, lambda text: "2" in text or "3" in text)
        assert await counts(bench, made["id"]) == {"total": 4, "succeeded": 2, "failed": 2}
        failed = {line["custom_id"]: line["response"] for line in await lines(bench, made["id"])}
        assert failed["c-2"]["status_code"] == 500
        assert failed["c-2"]["body"]["error"]["code"] == "generation_failed"
        again = await group(bench, made["id"], "/retry", "POST")
        assert (again.status_code, again.json()["status"]) == (202, "in_progress")
        assert await counts(bench, made["id"]) == {"total": 4, "succeeded": 2, "queued": 2}
        assert len(work(bench)) == 2
        assert (await group(bench, made["id"])).json()["status"] == "completed"
        assert await counts(bench, made["id"]) == {"total": 4, "succeeded": 4}
        assert error_of(await group(bench, made["id"], "/retry", "POST")) == (409, "job_not_retryable", None)

    bench.run(talk)


def test_failed_jobs_are_sent_again_no_more_at_a_time_than_the_window_holds(bench: Bench) -> None:
    bench.settings.limits.bulk_window = 4

    async def talk() -> None:
        made = await create(bench, 12)
        while work(bench, lambda text: "1" not in text):  # all but 1, 10 and 11
            await tend(bench.farm, made["id"])
        assert await counts(bench, made["id"]) == {"total": 12, "failed": 9, "succeeded": 3}
        again = await group(bench, made["id"], "/retry", "POST")
        assert (again.status_code, again.json()["status"]) == (202, "in_progress")
        assert await counts(bench, made["id"]) == {"total": 12, "failed": 5, "succeeded": 3, "queued": 4}
        await tend(bench.farm, made["id"])
        assert (await counts(bench, made["id"]))["queued"] == 4
        while work(bench):
            await tend(bench.farm, made["id"])
        assert await counts(bench, made["id"]) == {"total": 12, "succeeded": 12}
        assert (await group(bench, made["id"])).json()["status"] == "completed"

    bench.run(talk)


def test_what_two_calls_want_to_be_sent_again_is_all_sent_again(bench: Bench) -> None:
    bench.settings.limits.bulk_window = 2

    async def talk() -> None:
        made = await create(bench, 6)
        path = f"/v1/audio/job_groups/{made['id']}/retry"
        for _ in range(2):
            work(bench, lambda _: True)
            await tend(bench.farm, made["id"])
        await group(bench, made["id"], "/cancel", "POST")
        await tend(bench.farm, made["id"])
        assert await counts(bench, made["id"]) == {"total": 6, "failed": 4, "cancelled": 2}
        for states in (["failed"], ["cancelled"]):
            assert (await ask(bench, "POST", path, {"states": states})).status_code == 202
        while work(bench):
            await tend(bench.farm, made["id"])
        assert await counts(bench, made["id"]) == {"total": 6, "succeeded": 6}

    bench.run(talk)


def test_lines_that_expired_and_are_cancelled_later_count_once(bench: Bench) -> None:
    bench.settings.limits.bulk_window = 2

    async def talk() -> None:
        made = await create(bench, 6)
        bench.client.server("control").hincrby(bench.client.keys.group(made["id"]), "began", -2 * 86_400_000)
        await tend(bench.farm, made["id"])
        assert await counts(bench, made["id"]) == {"total": 6, "expired": 4, "queued": 2}
        await group(bench, made["id"], "/cancel", "POST")
        assert await counts(bench, made["id"]) == {"total": 6, "cancelled": 6}
        path = f"/v1/audio/job_groups/{made['id']}/retry"
        assert (await ask(bench, "POST", path, {"states": ["cancelled"]})).status_code == 202
        while work(bench):
            await tend(bench.farm, made["id"])
        assert await counts(bench, made["id"]) == {"total": 6, "succeeded": 6}

    bench.run(talk)


def test_bulk_that_waits_keeps_nobody_else_out(bench: Bench) -> None:
    bench.settings.limits.max_interactive_wait_s = 0.01
    bench.settings.limits.queue_depth = 4

    async def talk() -> None:
        await create(bench, 4)
        await asyncio.sleep(0.05)
        (card,) = (card for card in bench.farm.models if card.id == "hibari")
        assert (await bench.farm.state(card, fresh=True)).queued == {"interactive": 0, "normal": 2, "batch": 0}
        await bench.farm.admit(card, interactive=True, patient=True)

    bench.run(talk)


def test_a_line_whose_deadline_has_passed_expires(bench: Bench) -> None:
    bench.settings.limits.bulk_window = 1

    async def talk() -> None:
        made = await create(bench, 3)
        # as if it had been made two days ago
        bench.client.server("control").hincrby(bench.client.keys.group(made["id"]), "began", -2 * 86_400_000)
        await tend(bench.farm, made["id"])
        assert await counts(bench, made["id"]) == {"total": 3, "expired": 2, "queued": 1}
        work(bench)
        assert (await group(bench, made["id"])).json()["status"] == "completed"

    bench.run(talk)


def test_the_end_of_a_group_is_told_once(bench: Bench) -> None:
    endpoint = new_endpoint("default", "n", "https://example.com/", ("audio.job_group.completed",), 1.0)
    assert bench.client.run(put_endpoint(endpoint)) == "ok"

    async def talk() -> None:
        made = await create(bench, 2)
        work(bench)
        entries = bench.client.server("control").xrange(bench.client.keys.outbox())
        told = [entry for _, entry in entries if entry[b"type"] == b"audio.job_group.completed"]
        assert len(told) == 1
        data = json.loads(told[0][b"data"])
        assert (data["id"], data["status"], data["counts"]["succeeded"]) == (made["id"], "completed", 2)

    bench.run(talk)


def test_a_group_that_is_sent_again_is_the_same(bench: Bench) -> None:
    async def talk() -> None:
        body = {"requests": [{"request": HI}]}
        key = {"Idempotency-Key": "again"}
        first = await ask(bench, "POST", JOBS, body, **key)
        second = await ask(bench, "POST", JOBS, body, **key)
        server = bench.client.server("control")
        assert server.delete(*server.keys(f"{bench.client.keys.root}:reply:*")) == 1  # it was not kept in time
        third = await ask(bench, "POST", JOBS, body, **key)
        assert {answer.status_code for answer in (first, second, third)} == {202}
        assert {answer.json()["id"] for answer in (first, second, third)} == {first.json()["id"]}
        assert len((await ask(bench, "GET", JOBS)).json()["data"]) == 1

    bench.run(talk)


def test_only_accepted_characters_are_charged_and_groups_of_others_are_hidden(bench: Bench) -> None:
    limits = KeyLimits(characters_per_minute=1000)
    bench.settings.auth.enabled = True
    bench.settings.auth.keys = [
        ApiKey(key="sk-a", name="a", project="a", limits=limits),
        ApiKey(key="sk-b", name="b", project="b"),
    ]
    a, b = ({"Authorization": f"Bearer {key}"} for key in ("sk-a", "sk-b"))

    async def talk() -> None:
        requests = [{"request": {"input": "x" * 100}}, {"request": {"input": "y" * 300, "voice": "nobody"}}]
        skipped = await ask(bench, "POST", JOBS, {"requests": requests, "on_invalid": "skip"}, **a)
        assert skipped.headers["x-ratelimit-remaining-characters"] == "900"
        refused = await ask(bench, "POST", JOBS, {"requests": requests}, **a)
        assert refused.status_code == 400
        too_much = await ask(bench, "POST", JOBS, {"requests": [{"request": {"input": "x" * 950}}]}, **a)
        assert error_of(too_much) == (429, "rate_limit_exceeded", None)
        path = f"/v1/audio/job_groups/{skipped.json()['id']}"
        assert (await ask(bench, "GET", path, **a)).status_code == 200
        assert error_of(await ask(bench, "GET", path, **b)) == (404, "job_not_found", None)

    bench.run(talk)
