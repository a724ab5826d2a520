"""Deliveries of events: what is to be sent where and when, and what came of it (speech_api §5.5).

`functions/webhooks.lua` keeps them: an entry leaves the outbox in the same step in which its deliveries come into
being, and a delivery leaves its queue with the last of its tries. So whoever dies, nothing is lost; at worst it is
sent again.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, cast

from speechmill.infra.client import AsyncClient
from speechmill.infra.protocol import Call

KEEP_S = 14 * 86_400
"""How long a delivery is known; longer than all of its tries take."""
State = Literal["pending", "delivered", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One event on its way to one target."""

    id: str
    project: str
    target: str
    """Id of an endpoint, or a name for the URL of a single job. Deliveries to one target follow one another."""
    url: str = ""
    """Of the job's own webhook; an endpoint's is looked up, for it may change."""
    message: dict[str, Any]
    """The event's body."""
    result_key: str = ""
    result_type: str = ""
    created_at: int
    """Unix seconds."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try."""

    at: int
    """Unix seconds."""
    duration_ms: int
    status_code: int | None
    error: str
    """Why there is no status; "" where there is one."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A delivery that is to be tried now, and how often it has been."""

    delivery: Delivery
    tries: int


@dataclass(frozen=True, slots=True)
class Logged:
    """A delivery and what has come of it so far."""

    delivery: Delivery
    state: State
    attempts: tuple[Attempt, ...]
    next_at: float | None
    """Unix seconds; None when it is not tried again."""

    @property
    def id(self) -> str:
        return self.delivery.id


def queue_deliveries(deliveries: Sequence[Delivery], entry: bytes = b"") -> Call[str]:
    """Have them made. With an entry of the outbox: in its place; `gone` when somebody else has done so."""
    args = [part for one in deliveries for part in (one.id, one.target, json.dumps(asdict(one)))]
    return Call("queue_deliveries", (entry, KEEP_S, *args), bytes.decode)


def due_targets(most: int, lease_ms: int) -> Call[list[str]]:
    """Targets with something to be delivered. Each is answered once, and again only after the lease."""
    return Call("due_targets", (most, lease_ms), lambda raw: [target.decode() for target in raw])


def next_delivery(target: str, token: str, lease_ms: int) -> Call[Turn | None]:
    """What is due first, for the one that holds the token; None when that is nothing, or somebody else is at it."""

    def parse(raw: list[Any] | None) -> Turn | None:
        return Turn(_parse(raw[1]), int(raw[2])) if raw else None

    return Call("next_delivery", (target, token, lease_ms), parse)


def leave_target(target: str, token: str) -> Call[str]:
    """Let somebody else go on."""
    return Call("leave_target", (target, token), bytes.decode)


def settle_delivery(turn: Turn, attempt: Attempt, outcome: str, state: State, wait_s: float = 0) -> Call[str]:
    """What came of a try, and when the next is if it is `pending`."""
    delivery, told = turn.delivery, json.dumps(asdict(attempt))
    args = (delivery.id, delivery.target, turn.tries + 1, told, outcome, state, int(wait_s * 1000), KEEP_S)
    return Call("settle_delivery", args, bytes.decode)


async def find_delivery(client: AsyncClient, project: str, delivery_id: str) -> Delivery | None:
    """None also for what belongs to another project."""
    raw = await client.server("control").hget(client.keys.delivery(delivery_id), "record")
    delivery = _parse(cast(bytes, raw)) if raw else None
    return delivery if delivery is not None and delivery.project == project else None


async def list_deliveries(client: AsyncClient, target: str) -> list[Logged]:
    """Newest first, as far back as the log goes."""
    server, keys = client.server("control"), client.keys
    ids = [raw.decode() for raw in cast(list[bytes], await server.zrevrange(keys.deliveries(target), 0, -1))]
    pipe = server.pipeline(transaction=False)
    for one in ids:
        pipe.hgetall(keys.delivery(one))
        pipe.zscore(keys.due(target), one)
    answers = await pipe.execute()
    return [_logged(answers[i], answers[i + 1]) for i in range(0, len(answers), 2) if answers[i]]


def _parse(raw: bytes) -> Delivery:
    return Delivery(**json.loads(raw))


def _logged(fields: dict[bytes, bytes], due_ms: float | None) -> Logged:
    tries = int(fields[b"tries"])
    attempts = tuple(Attempt(**json.loads(fields[b"try:%d" % number])) for number in range(1, tries + 1))
    state = cast(State, fields[b"state"].decode())
    return Logged(_parse(fields[b"record"]), state, attempts, None if due_ms is None else due_ms / 1000)
