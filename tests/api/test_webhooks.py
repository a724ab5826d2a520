"""Webhooks over HTTP on the real servers: endpoints, secrets, tests, and what was delivered."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from receiver import Receiver

from speechmill.api import errors, ops
from speechmill.api.farm import FarmState
from speechmill.api.webhooks import deliveries, endpoints
from speechmill.configs.settings import ApiKey, Auth, Settings, Webhooks
from speechmill.infra.client import Client
from speechmill.infra.deliveries import Attempt, Delivery, next_delivery, queue_deliveries, settle_delivery
from speechmill.infra.embedded import EmbeddedS3, EmbeddedValkey
from speechmill.infra.events import message
from speechmill.infra.keys import Keys, new_id
from speechmill.infra.posting import Poster
from speechmill.infra.signatures import verify
from speechmill.infra.webhooks import MOST_ENDPOINTS, new_endpoint, project_secrets, put_endpoint

KEYS = (
    ApiKey(key="sk-a", project="a"),
    ApiKey(key="sk-b", project="b"),
    ApiKey(key="sk-speech", project="a", scopes=("speech",)),
)
NEW = {"name": "site", "url": "https://example.com/hook", "event_types": ["audio.job.succeeded"]}
UNKNOWN = (404, "not_found", None)


async def public(host: str) -> list[str]:
    """Every name has one and the same address."""
    return ["8.8.8.8"]


class Office:
    """The routes of webhooks in an app of their own."""

    def __init__(self, valkey: EmbeddedValkey, s3: EmbeddedS3, prefix: str) -> None:
        settings = Settings(
            auth=Auth(enabled=True, keys=KEYS), webhooks=Webhooks(allow_http=True, allowed_cidrs=("127.0.0.0/8",))
        )
        settings.redis.control_url, settings.redis.prefix = valkey.url, prefix
        settings.s3.endpoint_url = s3.endpoint_url
        settings.s3.access_key, settings.s3.secret_key = s3.access_key, s3.secret_key
        self.client = Client(valkey.url, valkey.url, Keys(prefix))
        self.farm = FarmState(settings)
        self.farm.poster = Poster(settings, public)
        self.app = FastAPI()
        self.app.state.farm = self.farm
        errors.install(self.app)
        for part in (endpoints, deliveries, ops):
            self.app.include_router(part.router)

    def run(self, talk: Callable[[httpx.AsyncClient], Awaitable[None]]) -> None:
        async def main() -> None:
            await self.farm.start()
            transport = httpx.ASGITransport(self.app)
            try:
                async with httpx.AsyncClient(transport=transport, base_url="http://test/v1", headers=key("a")) as http:
                    await talk(http)
            finally:
                await self.farm.stop()

        asyncio.run(main())

    def deliver(self, endpoint: str, *statuses: int) -> str:
        """A delivery to the endpoint with so many tries behind it; answers its id."""
        told = message("webhook.test", 1.0, {"id": endpoint})
        one = Delivery(id=new_id("whdel"), project="a", target=endpoint, message=told, created_at=1)
        self.client.run(queue_deliveries([one]))
        for status in statuses:
            turn = self.client.run(next_delivery(endpoint, "t", 60_000))
            assert turn is not None
            is_good = status < 300
            outcome, state = ("delivered", "delivered") if is_good else ("retried", "pending")
            self.client.run(settle_delivery(turn, Attempt(7, 1, status, ""), outcome, state))  # type: ignore[arg-type]
        return one.id


@pytest.fixture
def office(valkey: EmbeddedValkey, s3: EmbeddedS3, prefix: str) -> Iterator[Office]:
    office = Office(valkey, s3, prefix)
    yield office
    office.client.close()


def key(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer sk-{name}"}


def fault(answer: httpx.Response) -> tuple[int, str, str | None]:
    error = answer.json()["error"]
    return answer.status_code, error["code"], error["param"]


async def create(http: httpx.AsyncClient, **changes: Any) -> dict[str, Any]:
    answer = await http.post("/webhook_endpoints", json={**NEW, **changes})
    assert answer.status_code == 200, answer.text
    made: dict[str, Any] = answer.json()
    return made


def test_an_endpoint_is_made_shown_listed_changed_and_deleted(office: Office) -> None:
    async def talk(http: httpx.AsyncClient) -> None:
        made = await create(http)
        secret = made.pop("signing_secret")
        assert secret.startswith("whsec_")
        assert made == {
            "id": made["id"],
            "object": "webhook_endpoint",
            **NEW,
            "created_at": made["created_at"],
            "updated_at": made["created_at"],
            "signing_secret_hint": f"whsec_…{secret[-4:]}",
            "include_result_url": False,
            "enabled": True,
            "disabled_reason": None,
        }
        path = f"/webhook_endpoints/{made['id']}"
        assert (await http.get(path)).json() == made
        listed = (await http.get("/webhook_endpoints")).json()
        assert listed == {
            "object": "list",
            "data": [made],
            "first_id": made["id"],
            "last_id": made["id"],
            "has_more": False,
        }
        change = {"name": "other", "event_types": ["webhook.test", "webhook.test"], "include_result_url": True}
        changed = (await http.post(path, json=change)).json()
        assert changed == made | change | {"event_types": ["webhook.test"], "updated_at": changed["updated_at"]}
        assert (await http.get(path)).json() == changed
        gone = await http.delete(path)
        assert gone.json() == {"id": made["id"], "object": "webhook_endpoint.deleted", "deleted": True}
        assert [fault(await http.get(path)), fault(await http.delete(path))] == [UNKNOWN, UNKNOWN]

    office.run(talk)


def test_endpoints_are_listed_newest_first_in_pages(office: Office) -> None:
    async def talk(http: httpx.AsyncClient) -> None:
        for number in range(3):
            office.client.run(put_endpoint(new_endpoint("a", str(number), NEW["url"], ("webhook.test",), 1)))
        first = (await http.get("/webhook_endpoints?limit=2")).json()
        rest = (await http.get(f"/webhook_endpoints?limit=2&after={first['last_id']}")).json()
        ids = [one["id"] for one in first["data"] + rest["data"]]
        assert ids == sorted(ids, reverse=True)
        assert [len(ids), first["has_more"], rest["has_more"]] == [3, True, False]
        assert fault(await http.get("/webhook_endpoints?after=whep_x")) == (400, "invalid_cursor", "after")

    office.run(talk)


def test_only_its_own_project_sees_an_endpoint_and_its_deliveries(office: Office) -> None:
    async def talk(http: httpx.AsyncClient) -> None:
        made = await create(http)
        delivery = office.deliver(made["id"])
        path = f"/webhook_endpoints/{made['id']}"
        answers = [await http.get(f"{path}{more}", headers=key("b")) for more in ("", "/deliveries")]
        answers.append(await http.delete(path, headers=key("b")))
        for more in ("", "/rotate_secret", "/test"):
            answers.append(await http.post(f"{path}{more}", json={}, headers=key("b")))
        answers.append(await http.post(f"/webhook_deliveries/{delivery}/redeliver", headers=key("b")))
        assert [fault(answer) for answer in answers] == [UNKNOWN] * 7
        assert (await http.get("/webhook_endpoints", headers=key("b"))).json()["data"] == []
        assert fault(await http.get(path, headers=key("speech")))[:2] == (403, "permission_denied")
        assert (await http.get(path)).status_code == 200

    office.run(talk)


@pytest.mark.parametrize(
    ("change", "code", "param"),
    [
        ({"name": ""}, "invalid_value", "name"),
        ({"name": 7}, "invalid_type", "name"),
        ({"event_types": []}, "invalid_value", "event_types"),
        ({"event_types": ["response.completed"]}, "invalid_value", "event_types"),
        ({"event_types": "webhook.test"}, "invalid_type", "event_types"),
        ({"include_result_url": "yes"}, "invalid_type", "include_result_url"),
        ({"url": "ftp://example.com"}, "webhook_url_forbidden", "url"),
        ({"url": "https://10.0.0.1/x"}, "webhook_url_forbidden", "url"),
        ({"url": "https://0x7f.1:99/"}, None, None),
        ({"url": "https://example.com:22/"}, "webhook_url_forbidden", "url"),
        ({"url": "https://name:word@example.com/"}, "webhook_url_forbidden", "url"),
        ({"url": "https://example.com/" + "x" * 2048}, "webhook_url_forbidden", "url"),
    ],
)
def test_what_is_no_endpoint_is_refused_and_told_why(
    office: Office, change: dict[str, Any], code: str | None, param: str | None
) -> None:
    async def talk(http: httpx.AsyncClient) -> None:
        made = await create(http)
        for path in ("/webhook_endpoints", f"/webhook_endpoints/{made['id']}"):
            answer = await http.post(path, json={**NEW, **change})
            assert answer.status_code == 200 if code is None else fault(answer) == (400, code, param)

    office.run(talk)


def test_what_an_endpoint_needs_must_be_said(office: Office) -> None:
    async def talk(http: httpx.AsyncClient) -> None:
        for name in NEW:
            body = {field: value for field, value in NEW.items() if field != name}
            answer = await http.post("/webhook_endpoints", json=body)
            assert fault(answer) == (400, "missing_required_parameter", name)

    office.run(talk)


def test_a_project_with_too_many_endpoints_gets_no_more(office: Office) -> None:
    async def talk(http: httpx.AsyncClient) -> None:
        for _ in range(MOST_ENDPOINTS):
            office.client.run(put_endpoint(new_endpoint("a", "n", NEW["url"], ("webhook.test",), 1)))
        assert fault(await http.post("/webhook_endpoints", json=NEW)) == (400, "invalid_value", None)

    office.run(talk)


def test_changes_at_the_same_time_all_come_to_pass(office: Office) -> None:
    async def talk(http: httpx.AsyncClient) -> None:
        path = f"/webhook_endpoints/{(await create(http))['id']}"
        changes = [{"name": "new"}, {"event_types": ["webhook.test"]}, {"include_result_url": True}]
        await asyncio.gather(*(http.post(path, json=change) for change in changes))
        found = (await http.get(path)).json()
        assert all(found[name] == value for change in changes for name, value in change.items())

    office.run(talk)


def test_an_endpoint_that_was_disabled_can_be_enabled_again(office: Office) -> None:
    async def talk(http: httpx.AsyncClient) -> None:
        path = f"/webhook_endpoints/{(await create(http))['id']}"
        off = (await http.post(path, json={"enabled": False})).json()
        assert (off["enabled"], off["disabled_reason"]) == (False, "by its owner")
        on = (await http.post(path, json={"enabled": True})).json()
        assert (on["enabled"], on["disabled_reason"]) == (True, None)

    office.run(talk)


@pytest.mark.parametrize("keep", [True, False])
def test_a_rotated_secret_signs_beside_the_old_one_or_in_its_place(office: Office, keep: bool) -> None:
    async def talk(http: httpx.AsyncClient) -> None:
        with Receiver() as receiver:
            made = await create(http, url=receiver.url)
            path = f"/webhook_endpoints/{made['id']}"
            body = {"keep_old_secret_active_for_24_hours": keep}
            rotated = (await http.post(f"{path}/rotate_secret", json=body)).json()
            assert rotated["signing_secret"] != made["signing_secret"]
            await http.post(f"{path}/test")
            received = receiver.next()
            verify(rotated["signing_secret"], received.headers, received.body, time.time())
            assert len(received.headers["webhook-signature"].split()) == 1 + keep
            if keep:
                verify(made["signing_secret"], received.headers, received.body, time.time())
            assert "signing_secret" not in (await http.get(path)).json()

    office.run(talk)


def test_the_project_s_own_secret_is_told_when_it_is_rotated(office: Office) -> None:
    async def talk(http: httpx.AsyncClient) -> None:
        before = project_secrets(office.client, "a").current
        body = {"keep_old_secret_active_for_24_hours": True}
        answer = (await http.post("/webhook_secret/rotate", json=body)).json()
        assert answer["object"] == "webhook_secret"
        assert project_secrets(office.client, "a").active(time.time()) == (answer["signing_secret"], before)
        other = (await http.post("/webhook_secret/rotate", headers=key("b"))).json()
        assert project_secrets(office.client, "b").active(time.time()) == (other["signing_secret"],)

    office.run(talk)


@pytest.mark.parametrize("status", [204, 500])
def test_a_test_sends_an_event_and_tells_the_status(office: Office, status: int) -> None:
    async def talk(http: httpx.AsyncClient) -> None:
        with Receiver([status]) as receiver:
            made = await create(http, url=receiver.url)
            body = {"event_type": "audio.job.failed"}
            answer = await http.post(f"/webhook_endpoints/{made['id']}/test", json=body)
            assert answer.json() == {
                "object": "webhook_endpoint.test",
                "webhook_endpoint_id": made["id"],
                "event_type": "audio.job.failed",
                "status_code": status,
                "success": True,
            }
            received = receiver.next()
            verify(made["signing_secret"], received.headers, received.body, time.time())
            assert received.message["type"] == "audio.job.failed"

    office.run(talk)


def test_a_test_that_nobody_answers_says_so_and_no_address(office: Office) -> None:
    async def talk(http: httpx.AsyncClient) -> None:
        with Receiver() as receiver:
            made = await create(http, url=receiver.url)
        answer = await http.post(f"/webhook_endpoints/{made['id']}/test", json={})
        assert fault(answer) == (400, "invalid_value", "url")
        assert "127.0.0.1" not in answer.text

    office.run(talk)


def test_deliveries_are_listed_with_their_tries(office: Office) -> None:
    async def talk(http: httpx.AsyncClient) -> None:
        made = await create(http)
        path = f"/webhook_endpoints/{made['id']}/deliveries"
        done, waiting = office.deliver(made["id"], 500, 204), office.deliver(made["id"])
        newest, oldest = (await http.get(path)).json()["data"]
        assert newest["next_attempt_at"] > 0
        assert newest == {
            "id": waiting,
            "object": "webhook_delivery",
            "webhook_endpoint_id": made["id"],
            "event_id": newest["event_id"],
            "event_type": "webhook.test",
            "status": "pending",
            "created_at": 1,
            "next_attempt_at": newest["next_attempt_at"],
            "attempts": [],
        }
        assert (oldest["id"], oldest["status"], oldest["next_attempt_at"]) == (done, "delivered", None)
        assert [attempt["status_code"] for attempt in oldest["attempts"]] == [500, 204]
        page = (await http.get(f"{path}?limit=1&after={waiting}")).json()
        assert [one["id"] for one in page["data"]] == [done]

    office.run(talk)


def test_a_redelivery_is_another_delivery_of_the_same_event(office: Office) -> None:
    async def talk(http: httpx.AsyncClient) -> None:
        made = await create(http)
        first = office.deliver(made["id"], 204)
        again = (await http.post(f"/webhook_deliveries/{first}/redeliver")).json()
        listed = (await http.get(f"/webhook_endpoints/{made['id']}/deliveries")).json()["data"]
        assert [one["id"] for one in listed] == [again["id"], first]
        assert (again["status"], again["event_id"]) == ("pending", listed[1]["event_id"])
        turn = office.client.run(next_delivery(made["id"], "t", 60_000))
        assert turn is not None
        assert turn.delivery.id == again["id"]
        assert fault(await http.post("/webhook_deliveries/whdel_x/redeliver")) == UNKNOWN
        await http.delete(f"/webhook_endpoints/{made['id']}")
        assert fault(await http.post(f"/webhook_deliveries/{first}/redeliver")) == UNKNOWN

    office.run(talk)


def test_event_types_are_listed(office: Office) -> None:
    async def talk(http: httpx.AsyncClient) -> None:
        listed = (await http.get("/webhook_event_types")).json()
        assert listed["object"] == "list"
        assert {"audio.job.succeeded", "batch.completed", "audio.voice.created", "webhook.test"} <= {*listed["data"]}

    office.run(talk)


def test_tries_are_counted_in_the_metrics(office: Office) -> None:
    async def talk(http: httpx.AsyncClient) -> None:
        office.deliver((await create(http))["id"], 500, 204)
        shown = (await http.get("http://test/metrics")).text
        for outcome in ("retried", "delivered"):
            assert f'speech_webhook_deliveries_total{{outcome="{outcome}"}} 1.0' in shown

    office.run(talk)
