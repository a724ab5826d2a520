"""Telling the outside: from the outbox to deliveries, and from a delivery to an answer (speech_api §5.5)."""

import asyncio
import hashlib
import json
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast
from uuid import uuid4

from speechmill.configs.settings import Settings
from speechmill.infra.client import Client, Entry
from speechmill.infra.deliveries import (
    Attempt,
    Delivery,
    State,
    Turn,
    due_targets,
    leave_target,
    next_delivery,
    queue_deliveries,
    settle_delivery,
)
from speechmill.infra.events import Event, encode, read_event
from speechmill.infra.keys import new_id
from speechmill.infra.objects import ObjectStore
from speechmill.infra.posting import Answer, Poster
from speechmill.infra.webhooks import Endpoint, project_endpoints, project_secrets, put_endpoint, read_endpoint

log = logging.getLogger(__name__)
MOST_EVENTS = 500
"""Taken from the outbox at once."""
MOST_TARGETS = 100
SLICE_S = 10.0
"""How long one target is served before others get their turn."""
JITTER = 0.1
MOST_RETRY_AFTER_S = 86_400.0
DISABLE_AFTER_S = 5 * 86_400
LINK_S = 900
"""How long a link to a result holds."""
GONE = 410


def fan_out(client: Client) -> None:
    """Turn what stands in the outbox into deliveries: each event once, whoever dies, and however many do this."""
    entries = cast(list[Entry], client.server("control").xrange(client.keys.outbox(), count=MOST_EVENTS))
    for entry, fields in entries:
        try:
            deliveries = _deliveries(client, read_event(entry, fields, _result(client, fields)))
        except (ValueError, KeyError, TypeError) as error:
            log.error("not an event", extra={"entry": entry.decode(), "error": type(error).__name__})
            deliveries = []
        client.run(queue_deliveries(deliveries, entry))


def _result(client: Client, fields: dict[bytes, bytes]) -> dict[str, Any] | None:
    """What a job made, as long as its record stays."""
    if fields[b"type"] != b"audio.job.succeeded":
        return None
    raw = client.server("control").hget(client.keys.job(fields[b"job"].decode()), "result")
    return json.loads(cast(bytes, raw)) if raw else None


def _deliveries(client: Client, event: Event) -> list[Delivery]:
    def to(target: str, url: str = "") -> Delivery:
        return Delivery(
            id=new_id("whdel"),
            project=event.project,
            target=target,
            url=url,
            message=event.message,
            result_key=event.result_key,
            result_type=event.result_type,
            created_at=int(time.time()),
        )

    found = [to(one.id) for one in project_endpoints(client, event.project) if one.wants(event.type)]
    own = event.webhook
    if own is not None and (not own.events or event.type in own.events):
        place = hashlib.sha256(f"{event.project} {own.url}".encode()).hexdigest()
        found.append(to(f"url-{place}", own.url))
    return found


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an answer means for its delivery."""

    outcome: str
    """`delivered`, `retried`, `given_up`, or `gone`: nobody is there any more."""
    state: State
    wait_s: float = 0.0


class Courier:
    """Makes deliveries, one target at a time. Safe to use from several threads."""

    def __init__(self, settings: Settings, client: Client, objects: ObjectStore) -> None:
        """Raises ConfigError for bad `webhooks.*`."""
        self._client = client
        self._objects = objects
        self._poster = Poster(settings)
        self._retries_s = settings.webhooks.retries_s
        self.lease_s = 2 * settings.webhooks.timeout_s
        """How long a target waits for one that does not come back."""

    @property
    def _lease_ms(self) -> int:
        return int(self.lease_s * 1000)

    def targets(self) -> list[str]:
        """Those with something due, for `serve`; each is answered once in a lease."""
        return self._client.run(due_targets(MOST_TARGETS, self._lease_ms))

    def serve(self, target: str) -> None:
        """Make what is due, one delivery after the other, for a while."""
        token, until = uuid4().hex, time.monotonic() + SLICE_S
        while time.monotonic() < until:
            turn = self._client.run(next_delivery(target, token, self._lease_ms))
            if turn is None:
                return
            self._deliver(turn)
        self._client.run(leave_target(target, token))

    def _deliver(self, turn: Turn) -> None:
        delivery, began = turn.delivery, time.time()
        endpoint = None if delivery.url else read_endpoint(self._client, delivery.project, delivery.target)
        if not delivery.url and (endpoint is None or not endpoint.enabled):
            answer, verdict = Answer(None, "the endpoint is disabled or deleted"), Verdict("gone", "failed")
        else:
            answer = self._post(delivery, endpoint)
            verdict = judge(answer, turn.tries, self._retries_s)
        if endpoint is not None and endpoint.enabled:
            self._note_health(endpoint, answer)  # first: should we die here, the answer is asked for again
        attempt = Attempt(int(began), round((time.time() - began) * 1000), answer.status_code, answer.error)
        self._client.run(settle_delivery(turn, attempt, verdict.outcome, verdict.state, verdict.wait_s))
        told = {"delivery": delivery.id, "target": delivery.target, "outcome": verdict.outcome}
        log.info("webhook tried", extra={**told, "status": answer.status_code, "error": answer.error})

    def _post(self, delivery: Delivery, endpoint: Endpoint | None) -> Answer:
        message = delivery.message
        if endpoint is None:
            url, secrets = delivery.url, project_secrets(self._client, delivery.project)
        else:
            url, secrets = endpoint.url, endpoint.secrets
            if endpoint.include_result_url and delivery.result_key:
                message = {**message, "data": message["data"] | self._link(delivery)}
        active = secrets.active(time.time())
        return asyncio.run(self._poster.post(url, active, message["id"], encode(message)))

    def _link(self, delivery: Delivery) -> dict[str, Any]:
        """Made anew for every try, for it holds for minutes and the tries go on for days."""
        extension = delivery.result_key.rpartition(".")[2]
        name = f"{delivery.message['data']['id']}.{extension}"
        url = self._objects.presign(delivery.result_key, LINK_S, name, delivery.result_type)
        return {"url": url, "url_expires_at": int(time.time()) + LINK_S}

    def _note_health(self, endpoint: Endpoint, answer: Answer) -> None:
        def noted(one: Endpoint) -> Endpoint:
            return health(one, answer, int(time.time()))

        changed = _change(self._client, endpoint, noted)
        if changed is not None and not changed.enabled:
            log.warning("endpoint disabled", extra={"endpoint": changed.id, "reason": changed.disabled})


def judge(answer: Answer, tries: int, retries_s: tuple[float, ...]) -> Verdict:
    """What follows an answer, after `tries` tries before it. A server may ask for a longer wait than is planned."""
    if answer.is_success:
        return Verdict("delivered", "delivered")
    if answer.status_code == GONE:
        return Verdict("gone", "failed")
    if tries >= len(retries_s):
        return Verdict("given_up", "failed")
    planned_s = retries_s[tries] * random.uniform(1 - JITTER, 1 + JITTER)
    asked_s = answer.retry_after_s if answer.status_code in (429, 503) else 0.0
    return Verdict("retried", "pending", max(planned_s, min(asked_s, MOST_RETRY_AFTER_S)))


def health(endpoint: Endpoint, answer: Answer, now: int) -> Endpoint:
    """The endpoint after an answer. One that is gone, or has failed for days, is disabled. `now` in Unix seconds."""
    if answer.is_success:
        return replace(endpoint, failing_since=0)
    since = endpoint.failing_since or now
    if answer.status_code == GONE:
        return replace(endpoint, failing_since=since, disabled="it answered 410 Gone")
    if now - since >= DISABLE_AFTER_S:
        return replace(endpoint, failing_since=since, disabled="it failed for five days")
    return replace(endpoint, failing_since=since)


def _change(client: Client, endpoint: Endpoint, change: Callable[[Endpoint], Endpoint]) -> Endpoint | None:
    """The endpoint as it is now if the change makes a difference; what others change meanwhile stays."""
    known: Endpoint | None = endpoint
    while known is not None and (changed := change(known)) != known:
        changed = replace(changed, revision=known.revision + 1)
        if client.run(put_endpoint(changed)) == "ok":
            return changed
        known = read_endpoint(client, endpoint.project, endpoint.id)
    return None
