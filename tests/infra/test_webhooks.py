"""Signatures, events and the queue of deliveries, on a real server."""

import asyncio
import base64
import email.utils
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechmill.configs.settings import Fetch, Settings, Webhooks
from speechmill.infra.addresses import Forbidden
from speechmill.infra.client import Client
from speechmill.infra.deliveries import (
    Attempt,
    Delivery,
    due_targets,
    leave_target,
    next_delivery,
    queue_deliveries,
    settle_delivery,
)
from speechmill.infra.embedded import EmbeddedValkey
from speechmill.infra.errors import ConfigError
from speechmill.infra.events import MAX_BODY, encode, message, read_event
from speechmill.infra.keys import Keys, new_id
from speechmill.infra.messages import SpeechRequest, Submission
from speechmill.infra.posting import Poster, retry_after_s
from speechmill.infra.protocol import Limits, end_job, submit
from speechmill.infra.signatures import TOLERANCE_S, BadSignature, new_secret, sign, verify
from speechmill.infra.voices import VoiceRecord, drop_voice, put_voice
from speechmill.infra.webhooks import (
    MOST_ENDPOINTS,
    OLD_SECRET_S,
    Secrets,
    drop_endpoint,
    new_endpoint,
    project_endpoints,
    put_endpoint,
)

SECRET = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="  # noqa: S105  of the specification's check vector
BODY = (
    b'{"id":"evt_01JEXAMPLE","object":"event","type":"audio.job.succeeded","created_at":1767225600,'
    b'"timestamp":"2026-01-01T00:00:00Z","data":{"id":"job_01JEXAMPLE"}}'
)
SIGNATURE = "v1,aLZoacriZSdJBUm+UEpSTBv5YlluHiBTI2DgOAnMMRE="
AT = 1767225600
HEADERS = {"webhook-id": "evt_01JEXAMPLE", "webhook-timestamp": str(AT), "webhook-signature": SIGNATURE}
LEASE_MS = 60_000
RESULT = {"key": "audio/x.wav", "media_type": "audio/wav", "duration_ms": 1234}


@pytest.fixture
def client(valkey: EmbeddedValkey, prefix: str) -> Iterator[Client]:
    client = Client(valkey.url, valkey.url, Keys(prefix))
    client.load()
    yield client
    client.close()


def outbox(client: Client) -> list[tuple[bytes, dict[bytes, bytes]]]:
    return client.server("control").xrange(client.keys.outbox())


def job(client: Client, **changes: Any) -> str:
    """A job of project `a` that fails at once."""
    name = new_id("job")
    plain = {"job": name, "model": "toy", "stages": ("t",), "segments": ("Words.",), "project": "a"}
    request = SpeechRequest("v", 1, "wav", 24_000, 1)
    client.run(submit(Submission(**{**plain, "request": request, **changes}), Limits()))
    client.run(end_job(name, "failed", '{"code": "generation_failed", "message": "no"}'))
    return name


def delivery(target: str = "whep_1") -> Delivery:
    told = message("webhook.test", 1.0, {"id": "x"})
    return Delivery(id=new_id("whdel"), project="a", target=target, message=told, created_at=1)


def test_the_body_of_the_check_vector_has_its_signature() -> None:
    assert sign([SECRET], "evt_01JEXAMPLE", AT, BODY) == SIGNATURE
    verify(SECRET, HEADERS, BODY, AT)


def test_every_active_secret_signs() -> None:
    secrets = Secrets(SECRET).rotated(keep_old=True, now=AT)
    headers = {**HEADERS, "webhook-signature": sign(secrets.active(AT), "evt_01JEXAMPLE", AT, BODY)}
    for secret in (SECRET, secrets.current):
        verify(secret, headers, BODY, AT)
    assert secrets.active(AT + OLD_SECRET_S) == (secrets.current,)
    assert secrets.rotated(keep_old=False, now=AT).active(AT) not in (secrets.active(AT), (SECRET,))


def test_a_secret_is_32_random_bytes() -> None:
    first, second = new_secret(), new_secret()
    assert first != second
    assert len(base64.b64decode(first.removeprefix("whsec_"), validate=True)) == 32


@given(st.binary(), st.sampled_from(["body", "id", "secret"]))
def test_a_message_that_was_changed_is_not_taken(other: bytes, part: str) -> None:
    changed = {
        "body": (SECRET, HEADERS, other),
        "id": (SECRET, {**HEADERS, "webhook-id": f"evt_{other.hex()}"}, BODY),
        "secret": (f"whsec_{base64.b64encode(other).decode()}", HEADERS, BODY),
    }[part]
    with pytest.raises(BadSignature):
        verify(*changed, AT)


@pytest.mark.parametrize("off_s", [-TOLERANCE_S - 1, TOLERANCE_S + 1])
def test_a_message_from_another_time_is_not_taken(off_s: int) -> None:
    with pytest.raises(BadSignature, match="timestamp"):
        verify(SECRET, HEADERS, BODY, AT + off_s)


@given(st.text())
def test_a_timestamp_that_is_none_is_not_taken(text: str) -> None:
    if text != str(AT):
        with pytest.raises(BadSignature):
            verify(SECRET, {**HEADERS, "webhook-timestamp": text}, BODY, AT)


def test_an_event_is_written_as_the_specification_has_it() -> None:
    told = message("audio.job.succeeded", AT, {"id": "job_01JEXAMPLE"}) | {"id": "evt_01JEXAMPLE"}
    assert encode(told) == BODY


def test_an_event_of_a_job_tells_what_its_owner_called_it_and_no_text() -> None:
    fields = {b"type": b"audio.job.succeeded", b"job": b"job_1", b"project": b"a", b"custom_id": b"c"}
    event = read_event(b"1767225600123-0", {**fields, b"metadata": b'{"k":"v"}'}, RESULT)
    assert event.message["data"] == {
        "id": "job_1",
        "status": "succeeded",
        "custom_id": "c",
        "group_id": None,
        "metadata": {"k": "v"},
        "duration_ms": 1234,
    }
    assert (event.message["created_at"], event.message["timestamp"]) == (AT, "2026-01-01T00:00:00Z")
    assert (event.result_key, event.result_type, event.webhook) == ("audio/x.wav", "audio/wav", None)
    assert read_event(b"1-0", fields, None).message["data"]["duration_ms"] is None


@given(st.dictionaries(st.text(max_size=64), st.text(max_size=512), max_size=16))
def test_no_event_is_larger_than_20_kb(metadata: dict[str, str]) -> None:
    raw = json.dumps({**metadata, "語" * 64: "語" * 4096}).encode()
    fields = {b"type": b"audio.job.failed", b"job": b"job_1", b"project": b"a", b"metadata": raw}
    assert len(encode(read_event(b"1-0", fields, None).message)) <= MAX_BODY


def test_a_job_is_told_of_while_its_project_has_endpoints(client: Client) -> None:
    job(client)
    assert outbox(client) == []
    endpoint = new_endpoint("a", "n", "https://example.com", ("audio.job.failed",), 1)
    assert client.run(put_endpoint(endpoint)) == "ok"
    job(client, project="b")
    named = job(client, custom_id="chapter 1")
    job(client, counted=False)  # what the farm gave itself is nobody's business
    ((_, fields),) = outbox(client)
    assert (fields[b"job"], fields[b"custom_id"]) == (named.encode(), b"chapter 1")
    assert client.run(drop_endpoint("a", endpoint.id)) == "ok"
    job(client)
    assert len(outbox(client)) == 1


def test_a_job_with_a_webhook_of_its_own_is_told_of_in_any_case(client: Client) -> None:
    job(client, webhook=json.dumps({"url": "https://example.com/x", "events": ["audio.job.failed"]}))
    ((entry, fields),) = outbox(client)
    own = read_event(entry, fields, None).webhook
    assert own is not None
    assert (own.url, own.events) == ("https://example.com/x", ("audio.job.failed",))


def test_voices_are_told_of_while_their_project_has_endpoints(client: Client) -> None:
    def voice(name: str) -> VoiceRecord:
        plain = {"consent": "yes", "created_at": 1, "kind": "audio", "mime_type": "audio/wav", "file_size": 1}
        return VoiceRecord(id=new_id("voice"), name=name, project="a", **plain)  # type: ignore[arg-type]

    client.run(put_voice(voice("unheard"), "overwrite", 9))
    client.run(put_endpoint(new_endpoint("a", "n", "https://example.com", ("audio.voice.created",), 1)))
    first, second = voice("Ann/語"), voice("ann/語")
    for record in (first, first, second):
        client.run(put_voice(record, "overwrite", 9))
    client.run(drop_voice("a", second.id))
    told = [read_event(entry, fields, None).message for entry, fields in outbox(client)]
    assert [(one["type"].rpartition(".")[2], one["data"]) for one in told] == [
        ("created", {"id": first.id, "name": "Ann/語"}),
        ("deleted", {"id": first.id, "name": "Ann/語"}),
        ("created", {"id": second.id, "name": "ann/語"}),
        ("deleted", {"id": second.id, "name": "ann/語"}),
    ]


def test_an_entry_leaves_the_outbox_with_its_deliveries_and_only_once(client: Client) -> None:
    job(client, notify=True)
    ((entry, _),) = outbox(client)
    one, other = delivery(), delivery()
    assert client.run(queue_deliveries([one], entry)) == "ok"
    assert client.run(queue_deliveries([other], entry)) == "gone"
    assert outbox(client) == []
    turn = client.run(next_delivery("whep_1", "t", LEASE_MS))
    assert turn is not None
    assert (turn.delivery, turn.tries) == (one, 0)
    client.run(settle_delivery(turn, Attempt(1, 1, 204, ""), "delivered", "delivered"))
    assert client.run(next_delivery("whep_1", "t", LEASE_MS)) is None


def test_a_target_is_served_by_one_at_a_time(client: Client) -> None:
    client.run(queue_deliveries([delivery(), delivery()]))
    assert client.run(due_targets(9, LEASE_MS)) == ["whep_1"]
    assert client.run(due_targets(9, LEASE_MS)) == []
    assert client.run(next_delivery("whep_1", "mine", LEASE_MS)) is not None
    assert client.run(next_delivery("whep_1", "other", LEASE_MS)) is None
    client.run(leave_target("whep_1", "other"))
    assert client.run(due_targets(9, LEASE_MS)) == []
    client.run(leave_target("whep_1", "mine"))
    assert client.run(due_targets(9, LEASE_MS)) == ["whep_1"]


def test_what_is_given_to_one_that_dies_is_given_again_when_its_lease_is_over(client: Client) -> None:
    one = delivery()
    client.run(queue_deliveries([one]))
    client.run(due_targets(9, 1))
    client.run(next_delivery("whep_1", "dead", 1))
    found: list[str] = []
    while not found:  # a lease of one millisecond
        found = client.run(due_targets(9, LEASE_MS))
    turn = client.run(next_delivery("whep_1", "alive", LEASE_MS))
    assert turn is not None
    assert turn.delivery == one


def test_a_try_is_told_once_whoever_tells_it(client: Client) -> None:
    client.run(queue_deliveries([delivery()]))
    turn = client.run(next_delivery("whep_1", "t", LEASE_MS))
    assert turn is not None
    assert client.run(settle_delivery(turn, Attempt(1, 1, 500, ""), "retried", "pending", 3600)) == "ok"
    assert client.run(settle_delivery(turn, Attempt(1, 1, 204, ""), "delivered", "delivered")) == "stale"
    assert client.read_hash(client.keys.webhook_outcomes()) == {b"retried": b"1"}


def test_what_was_delivered_or_failed_makes_room_in_the_log(client: Client) -> None:
    made = [delivery() for _ in range(1002)]
    client.run(queue_deliveries(made[:1]))
    client.run(queue_deliveries(made[1:2]))
    turn = client.run(next_delivery("whep_1", "t", LEASE_MS))
    assert turn is not None
    client.run(settle_delivery(turn, Attempt(1, 1, 204, ""), "delivered", "delivered"))
    client.run(queue_deliveries(made[2:]))
    control, keys = client.server("control"), client.keys
    assert control.zcard(keys.deliveries("whep_1")) == 1000
    still = [bool(control.exists(keys.delivery(one.id))) for one in made[:2]]
    assert still == [one.id != turn.delivery.id for one in made[:2]]  # the one that still waits is not forgotten


def test_of_two_changes_of_one_revision_the_second_must_look_again(client: Client) -> None:
    endpoint = new_endpoint("a", "n", "https://example.com", ("webhook.test",), 1)
    assert [client.run(put_endpoint(endpoint)) for _ in range(2)] == ["ok", "ok"]
    first, second = (replace(endpoint, name=name, revision=2) for name in ("first", "second"))
    assert [client.run(put_endpoint(one)) for one in (first, second)] == ["ok", "changed"]
    assert project_endpoints(client, "a") == [first]


def test_a_project_has_so_many_endpoints_and_no_more(client: Client) -> None:
    made = [new_endpoint("a", "n", "https://example.com", ("webhook.test",), 1) for _ in range(MOST_ENDPOINTS + 1)]
    answers = [client.run(put_endpoint(one)) for one in made]
    assert answers == ["ok"] * MOST_ENDPOINTS + ["full"]


def poster(addresses: tuple[str, ...] = ("8.8.8.8",), **webhooks: Any) -> Poster:
    async def resolve(host: str) -> list[str]:
        if not addresses:
            raise OSError("no such host")
        return list(addresses)

    return Poster(Settings(webhooks=Webhooks(**webhooks), fetch=Fetch(allowed_ports=(8443,))), resolve)


OPEN: dict[str, Any] = {"allow_http": True, "allowed_cidrs": ("10.0.0.0/8", "127.0.0.0/8")}


@pytest.mark.parametrize(
    ("url", "to", "opened"),
    [
        ("https://example.com/x", ("8.8.8.8",), {}),
        ("https://example.com:8443/x", ("8.8.8.8",), {}),
        ("https://nowhere.example/x", (), {}),  # it may have an address by the time something is sent
        ("http://example.com/x", ("8.8.8.8",), OPEN),
        ("http://10.1.2.3:9999/x", (), OPEN),
    ],
)
def test_events_may_be_sent_to_public_addresses_and_opened_ones(
    url: str, to: tuple[str, ...], opened: dict[str, Any]
) -> None:
    asyncio.run(poster(to, **opened).check(url))


@pytest.mark.parametrize(
    ("url", "to", "opened"),
    [
        ("http://example.com/x", ("8.8.8.8",), {}),
        ("https://example.com/x", ("10.0.0.1",), {}),
        ("https://example.com/x", ("8.8.8.8", "192.168.0.1"), OPEN),
        ("https://example.com:9999/x", ("8.8.8.8", "10.0.0.1"), OPEN),
        ("https://169.254.169.254/x", (), OPEN),
        ("https://user:word@example.com/x", ("8.8.8.8",), OPEN),
        ("ftp://example.com/x", ("8.8.8.8",), OPEN),
        ("no url", ("8.8.8.8",), OPEN),
    ],
)
def test_events_are_sent_nowhere_else(url: str, to: tuple[str, ...], opened: dict[str, Any]) -> None:
    with pytest.raises(Forbidden):
        asyncio.run(poster(to, **opened).check(url))
    answer = asyncio.run(poster(to, **opened).post(url, [SECRET], "evt_1", b"{}"))
    assert answer.status_code is None
    assert "10.0.0.1" not in answer.error


@pytest.mark.parametrize(
    ("url", "setting"),
    [
        ("http://example.com/x", "webhooks.allow_http"),
        ("https://10.0.0.1/x", "webhooks.allowed_cidrs"),
        ("https://8.8.8.8:9999/x", "fetch.allowed_ports"),
    ],
)
def test_what_is_not_sent_to_is_told_with_the_setting_that_would_allow_it(url: str, setting: str) -> None:
    with pytest.raises(Forbidden, match=setting):
        asyncio.run(poster().check(url))


def test_a_range_that_is_none_is_an_error_of_the_settings() -> None:
    with pytest.raises(ConfigError, match=r"webhooks\.allowed_cidrs"):
        poster(allowed_cidrs=("10.0.0.0/64",))


@given(st.text() | st.integers(0).map(str))
def test_whatever_a_server_says_the_wait_is_a_number(header: str) -> None:
    assert retry_after_s(header, AT) >= 0


def test_a_wait_may_be_told_in_seconds_or_as_a_date() -> None:
    assert retry_after_s(" 120 ", AT) == 120
    assert retry_after_s(email.utils.formatdate(AT + 90, usegmt=True), AT) == 90
    assert retry_after_s(email.utils.formatdate(AT - 90, usegmt=True), AT) == 0
