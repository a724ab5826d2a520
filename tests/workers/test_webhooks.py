"""Events on their way to a real server: by a courier in this process, and by Celery in processes that are killed."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest
from e2e.harness import START_S, Farm, eventually
from receiver import Received, Receiver

from speechmill.configs.settings import Settings, Webhooks
from speechmill.infra.client import Client
from speechmill.infra.deliveries import Delivery, queue_deliveries
from speechmill.infra.embedded import EmbeddedS3, EmbeddedValkey
from speechmill.infra.keys import Keys, new_id
from speechmill.infra.messages import SpeechRequest, Submission
from speechmill.infra.objects import ObjectStore
from speechmill.infra.posting import Answer
from speechmill.infra.protocol import Limits, claim, commit, end_job, submit
from speechmill.infra.signatures import verify
from speechmill.infra.webhooks import (
    Endpoint,
    drop_endpoint,
    new_endpoint,
    project_secrets,
    put_endpoint,
    read_endpoint,
)
from speechmill.workers.webhooks import DISABLE_AFTER_S, Courier, Verdict, fan_out, health, judge

EVENTS = ("audio.job.succeeded", "audio.job.failed")
RETRIES_S = (5.0, 300.0)
FAILURE = '{"code": "generation_failed", "message": "no"}'


def place(client: Client, url: str, **changes: Any) -> Endpoint:
    """An endpoint of project `a`."""
    endpoint = replace(new_endpoint("a", "test", url, EVENTS, time.time()), **changes)
    assert client.run(put_endpoint(endpoint)) == "ok"
    return endpoint


def end(client: Client, **changes: Any) -> str:
    """A job of project `a` that fails."""
    job = new_id("job")
    request = SpeechRequest("v", 1, "wav", 24_000, 1)
    plain = Submission(job, "toy", ("t",), ("Secret words.",), request, tail=("store",), project="a")
    assert client.run(submit(replace(plain, **changes), Limits())).answer == "ok"
    client.run(end_job(job, "failed", FAILURE))
    return job


def finish(client: Client, result: dict[str, Any]) -> str:
    """A job of project `a` that succeeds."""
    job = new_id("job")
    request = SpeechRequest("v", 1, "wav", 24_000, 1)
    client.run(submit(Submission(job, "toy", ("t",), ("Words.",), request, tail=("store",), project="a"), Limits()))
    for pool, made in (("toy/t", ""), ("farm/store", json.dumps(result))):
        task = client.run(claim(pool, "w", new_id("n"), 60_000, 0))
        assert not isinstance(task, str)
        assert client.run(commit(task.task, task.token, made)) == "ok"
    return job


def assert_signed(received: Received, secret: str) -> None:
    verify(secret, received.headers, received.body, time.time())
    assert received.headers["webhook-id"] == received.message["id"]


@dataclass
class Post:
    """Fan-out and deliveries in this process."""

    client: Client
    objects: ObjectStore

    def courier(self, **webhooks: Any) -> Courier:
        opened = {"allow_http": True, "allowed_cidrs": ("127.0.0.0/8",), "retries_s": RETRIES_S}
        return Courier(Settings(webhooks=Webhooks(**{**opened, **webhooks})), self.client, self.objects)

    def deliver(self, **webhooks: Any) -> None:
        """Whatever is due now."""
        courier = self.courier(**webhooks)
        fan_out(self.client)
        for target in courier.targets():
            courier.serve(target)

    def states(self, target: str) -> list[tuple[str, int]]:
        """State and tries of every delivery to a target, oldest first."""
        control, keys = self.client.server("control"), self.client.keys
        ids = control.zrange(keys.deliveries(target), 0, -1)
        found = [self.client.read_hash(keys.delivery(one.decode())) for one in ids]
        return [(one[b"state"].decode(), int(one[b"tries"])) for one in found]

    def endpoint(self, endpoint: Endpoint) -> Endpoint:
        found = read_endpoint(self.client, "a", endpoint.id)
        assert found is not None
        return found


@pytest.fixture(scope="module")
def objects(s3: EmbeddedS3) -> ObjectStore:
    return ObjectStore(s3.bucket, s3.endpoint_url, s3.access_key, s3.secret_key)


@pytest.fixture
def post(valkey: EmbeddedValkey, objects: ObjectStore, prefix: str) -> Iterator[Post]:
    client = Client(valkey.url, valkey.url, Keys(prefix))
    client.load()
    yield Post(client, objects)
    client.close()


def test_an_event_is_sent_once_to_each_endpoint_that_wants_it(post: Post) -> None:
    with Receiver() as wanting, Receiver() as other, Receiver() as off:
        endpoint = place(post.client, wanting.url)
        place(post.client, other.url, event_types=("audio.job.cancelled",))
        place(post.client, off.url, disabled="by its owner")
        job = end(post.client)
        post.deliver()
        received = wanting.next()
        assert_signed(received, endpoint.secrets.current)
        assert (received.message["type"], received.message["data"]["id"]) == ("audio.job.failed", job)
        assert b"Secret words" not in received.body
        assert received.headers["content-type"] == "application/json"
        assert received.headers["user-agent"]
        post.deliver()
        assert wanting.is_quiet
        assert other.is_quiet
        assert off.is_quiet
        assert post.states(endpoint.id) == [("delivered", 1)]


def test_a_job_s_own_webhook_is_signed_with_the_project_s_secret(post: Post) -> None:
    with Receiver() as receiver:
        for events in (["audio.job.failed"], ["audio.job.succeeded"], None):
            end(post.client, webhook=json.dumps({"url": receiver.url, "events": events}))
        post.deliver()
        for _ in range(2):
            assert_signed(receiver.next(), project_secrets(post.client, "a").current)
        assert receiver.is_quiet


def test_a_link_to_the_result_is_sent_only_where_it_is_wanted(post: Post) -> None:
    post.objects.put_once(key := f"audio/{new_id('x')}.wav", b"RIFF", "audio/wav")
    with Receiver() as plain, Receiver() as linked:
        place(post.client, plain.url)
        endpoint = place(post.client, linked.url, include_result_url=True)
        finish(post.client, {"key": key, "media_type": "audio/wav", "duration_ms": 7})
        post.deliver()
        told, received = plain.next().message["data"], linked.next()
        assert_signed(received, endpoint.secrets.current)
        data = received.message["data"]
        assert "url" not in told
        assert told == {name: value for name, value in data.items() if not name.startswith("url")}
        assert told["duration_ms"] == 7
        assert httpx.get(data["url"], trust_env=False).content == b"RIFF"


def test_an_endpoint_that_is_gone_is_disabled(post: Post) -> None:
    with Receiver([410]) as receiver:
        endpoint = place(post.client, receiver.url)
        for _ in range(2):
            end(post.client)
        post.deliver()
        receiver.next()
        assert receiver.is_quiet
        assert not post.endpoint(endpoint).enabled
        assert [state for state, _ in post.states(endpoint.id)] == ["failed", "failed"]
        end(post.client)
        post.deliver()
        assert len(post.states(endpoint.id)) == 2


def test_a_failure_is_noted_and_a_success_forgets_it(post: Post) -> None:
    with Receiver([500, 500]) as receiver:
        endpoint = place(post.client, receiver.url)
        for _ in range(2):
            end(post.client)
        post.deliver()
        since = post.endpoint(endpoint).failing_since
        assert since > 0
        assert post.states(endpoint.id) == [("pending", 1), ("pending", 1)]
        end(post.client)
        post.deliver()
        assert post.endpoint(endpoint).failing_since == 0


def test_a_redirect_is_a_failure_and_nobody_follows_it(post: Post) -> None:
    with Receiver() as elsewhere, Receiver([(307, {"Location": elsewhere.url})]) as receiver:
        endpoint = place(post.client, receiver.url)
        end(post.client)
        post.deliver()
        receiver.next()
        assert elsewhere.is_quiet
        assert post.states(endpoint.id) == [("pending", 1)]


def test_an_endpoint_that_takes_too_long_has_failed(post: Post) -> None:
    with Receiver() as receiver:
        receiver.may_answer.clear()
        endpoint = place(post.client, receiver.url)
        end(post.client)
        post.deliver(timeout_s=0.2)
        assert post.states(endpoint.id) == [("pending", 1)]


def test_what_may_not_be_reached_any_more_is_not(post: Post) -> None:
    with Receiver() as receiver:
        endpoint = place(post.client, receiver.url)
        end(post.client)
        post.deliver(allowed_cidrs=())
        assert receiver.is_quiet
        assert post.states(endpoint.id) == [("pending", 1)]


def test_what_was_to_be_sent_to_a_deleted_endpoint_is_not(post: Post) -> None:
    with Receiver() as receiver:
        endpoint = place(post.client, receiver.url)
        end(post.client)
        fan_out(post.client)
        post.client.run(drop_endpoint("a", endpoint.id))
        post.deliver()
        assert receiver.is_quiet


def test_a_redelivery_has_the_same_id(post: Post) -> None:
    with Receiver() as receiver:
        endpoint = place(post.client, receiver.url)
        end(post.client)
        post.deliver()
        first = receiver.next()
        (known,) = post.client.server("control").zrange(post.client.keys.deliveries(endpoint.id), 0, -1)
        record = json.loads(post.client.read_hash(post.client.keys.delivery(known.decode()))[b"record"])
        post.client.run(queue_deliveries([replace(Delivery(**record), id=new_id("whdel"))]))
        post.deliver()
        second = receiver.next()
        assert_signed(second, endpoint.secrets.current)
        assert (second.headers["webhook-id"], second.body) == (first.headers["webhook-id"], first.body)


def test_an_entry_that_is_no_event_holds_nothing_up(post: Post) -> None:
    control, outbox = post.client.server("control"), post.client.keys.outbox()
    control.xadd(outbox, {"type": "audio.job.failed", "nonsense": "1"})
    with Receiver() as receiver:
        place(post.client, receiver.url)
        end(post.client)
        post.deliver()
        receiver.next()
    assert control.xlen(outbox) == 0


def test_the_waits_are_those_of_the_plan_and_longer_where_a_server_asks_for_it() -> None:
    for tries, planned_s in enumerate(RETRIES_S):
        verdict = judge(Answer(500, retry_after_s=9e9), tries, RETRIES_S)
        assert verdict.state == "pending"
        assert 0.9 * planned_s <= verdict.wait_s <= 1.1 * planned_s
    assert judge(Answer(500), len(RETRIES_S), RETRIES_S) == Verdict("given_up", "failed")
    assert judge(Answer(503, retry_after_s=7000), 0, RETRIES_S).wait_s == 7000
    assert judge(Answer(429, retry_after_s=1), 1, RETRIES_S).wait_s > 1
    assert judge(Answer(429, retry_after_s=9e9), 0, RETRIES_S).wait_s == 86_400
    assert judge(Answer(204), 0, RETRIES_S) == Verdict("delivered", "delivered")


def test_an_endpoint_that_fails_for_five_days_is_disabled() -> None:
    failing = replace(new_endpoint("a", "n", "https://example.com", EVENTS, 1), failing_since=1000)
    assert health(failing, Answer(None, "no"), 1000 + DISABLE_AFTER_S - 1).enabled
    assert not health(failing, Answer(None, "no"), 1000 + DISABLE_AFTER_S).enabled


@pytest.fixture(scope="module")
def farm(valkey: EmbeddedValkey, s3: EmbeddedS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    """A worker and a clock, as `speechmill up` starts them; what failed is tried again after a moment."""
    farm = Farm(valkey, s3, new_id("t"), tmp_path_factory.mktemp("celery"))
    farm.settings |= {
        "SPEECHMILL_DATA_DIR": str(farm.logs),
        "SPEECHMILL_WEBHOOKS__ALLOW_HTTP": "true",
        "SPEECHMILL_WEBHOOKS__ALLOWED_CIDRS": '["127.0.0.0/8"]',
        "SPEECHMILL_WEBHOOKS__RETRIES_S": "[0.1, 0.1, 0.1, 0.1, 0.1]",
        "SPEECHMILL_WEBHOOKS__TIMEOUT_S": "2",
    }
    farm.start("celery", "celery", "worker")
    farm.start("beat", "celery", "beat")
    yield farm
    farm.stop()


def test_celery_tries_again_what_failed(farm: Farm) -> None:
    with Receiver([500]) as receiver:
        endpoint = place(farm.client, receiver.url)
        job = end(farm.client)
        tries = [receiver.next() for _ in range(2)]
        for received in tries:
            assert_signed(received, endpoint.secrets.current)
            assert received.message["data"]["id"] == job
        assert tries[0].body == tries[1].body
        outcomes = farm.client.keys.webhook_outcomes()
        counted = {b"retried", b"delivered"}
        eventually(lambda: set(farm.client.read_hash(outcomes)) == counted, START_S, "both tries are counted")
        farm.client.run(drop_endpoint("a", endpoint.id))


def test_a_worker_that_is_killed_in_the_middle_of_a_delivery_loses_nothing(farm: Farm) -> None:
    with Receiver() as receiver:
        receiver.may_answer.clear()
        endpoint = place(farm.client, receiver.url)
        jobs = {end(farm.client) for _ in range(3)}
        cut = receiver.next()
        farm.kill("celery")
        jobs.add(end(farm.client))
        receiver.may_answer.set()
        farm.start("celery", "celery", "worker")
        told: dict[str, str] = {}
        while told.keys() != jobs:
            received = receiver.next()
            assert_signed(received, endpoint.secrets.current)
            told[received.message["data"]["id"]] = received.headers["webhook-id"]
        assert told[cut.message["data"]["id"]] == cut.headers["webhook-id"]
