"""Where a project wants to be told of events, and the secrets that sign what is sent there (speech_api §5.5)."""

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, fields, replace
from typing import cast

from speechmill.infra.client import AsyncClient, Client
from speechmill.infra.keys import new_id
from speechmill.infra.protocol import Call
from speechmill.infra.signatures import new_secret

EVENT_TYPES = (
    *(f"audio.job.{state}" for state in ("succeeded", "failed", "cancelled", "expired")),
    "audio.job_group.completed",
    *(f"batch.{state}" for state in ("completed", "failed", "expired", "cancelled")),
    *(f"audio.voice.{change}" for change in ("created", "deleted")),
    "webhook.test",
)
MOST_ENDPOINTS = 100
"""Of one project."""
OLD_SECRET_S = 86_400
_HINT_CHARS = 4


@dataclass(frozen=True, slots=True)
class Secrets:
    """What signs now, and beside it for a while what did before."""

    current: str
    old: str = ""
    old_until: int = 0
    """Unix seconds."""

    @classmethod
    def new(cls) -> "Secrets":
        return cls(new_secret())

    @property
    def hint(self) -> str:
        """For people to tell secrets apart."""
        return f"whsec_…{self.current[-_HINT_CHARS:]}"

    def active(self, now: float) -> tuple[str, ...]:
        """Those that sign at a Unix time."""
        return (self.current, self.old) if now < self.old_until else (self.current,)

    def rotated(self, keep_old: bool, now: float) -> "Secrets":
        """A new secret. The old one signs beside it for a day, or not at all."""
        return Secrets(new_secret(), self.current, int(now) + OLD_SECRET_S) if keep_old else Secrets.new()


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A URL of a project, and what it is told of. Times are Unix seconds."""

    id: str
    project: str
    name: str
    url: str
    event_types: tuple[str, ...]
    secrets: Secrets
    created_at: int
    updated_at: int
    """Last change by its owner."""
    include_result_url: bool = False
    """Tell where the audio may be fetched for a while."""
    disabled: str = ""
    """Why nothing is sent there; "" while it is."""
    failing_since: int = 0
    """When the first of the failures was that no success has followed; 0 for none."""
    revision: int = 1

    @property
    def enabled(self) -> bool:
        return not self.disabled

    def wants(self, event_type: str) -> bool:
        return self.enabled and event_type in self.event_types


def new_endpoint(project: str, name: str, url: str, event_types: tuple[str, ...], now: float) -> Endpoint:
    """One with an id and a secret of its own."""
    return Endpoint(
        id=new_id("whep"),
        project=project,
        name=name,
        url=url,
        event_types=event_types,
        secrets=Secrets.new(),
        created_at=int(now),
        updated_at=int(now),
    )


def put_endpoint(endpoint: Endpoint) -> Call[str]:
    """Install a record in place of the revision before it: `ok`, `changed` by somebody else meanwhile, or `full`."""
    record = json.dumps(asdict(endpoint), ensure_ascii=False)
    return Call("put_endpoint", (endpoint.project, endpoint.id, record, MOST_ENDPOINTS), bytes.decode)


def drop_endpoint(project: str, endpoint_id: str) -> Call[str]:
    """`ok` or `unknown`. What was still to be sent there is not sent any more."""
    return Call("drop_endpoint", (project, endpoint_id), bytes.decode)


async def find_endpoint(client: AsyncClient, project: str, endpoint_id: str) -> Endpoint | None:
    """None also for what belongs to another project."""
    raw = await client.server("control").hget(client.keys.webhooks(project), endpoint_id)
    return _parse(cast(bytes, raw)) if raw else None


async def list_endpoints(client: AsyncClient, project: str) -> list[Endpoint]:
    """Newest first."""
    found = await client.server("control").hvals(client.keys.webhooks(project))
    return _newest_first(cast(list[bytes], found))


async def change_endpoint(
    client: AsyncClient, project: str, endpoint_id: str, change: Callable[[Endpoint], Endpoint]
) -> Endpoint | None:
    """The endpoint as it is after the change; None when there is no such. What others change meanwhile stays."""
    while endpoint := await find_endpoint(client, project, endpoint_id):
        changed = replace(change(endpoint), revision=endpoint.revision + 1)
        if await client.run(put_endpoint(changed)) == "ok":
            return changed
    return None


async def rotate_project_secret(client: AsyncClient, project: str, keep_old: bool, now: float) -> Secrets:
    """A new secret for the URLs that single jobs bring with them; the first call makes the first one."""
    server, key = client.server("control"), client.keys.webhook_secrets()
    raw = cast(bytes | None, await server.hget(key, project))
    secrets = Secrets(**json.loads(raw)).rotated(keep_old, now) if raw else Secrets.new()
    await server.hset(key, project, json.dumps(asdict(secrets)))
    return secrets


def project_endpoints(client: Client, project: str) -> list[Endpoint]:
    """`list_endpoints` for blocking callers."""
    return _newest_first(client.read_hash(client.keys.webhooks(project)).values())


def read_endpoint(client: Client, project: str, endpoint_id: str) -> Endpoint | None:
    """`find_endpoint` for blocking callers."""
    raw = cast(bytes | None, client.server("control").hget(client.keys.webhooks(project), endpoint_id))
    return _parse(raw) if raw else None


def project_secrets(client: Client, project: str) -> Secrets:
    """What signs for the URLs that single jobs bring with them. It is made when it is first needed."""
    server, key = client.server("control"), client.keys.webhook_secrets()
    server.hsetnx(key, project, json.dumps(asdict(Secrets.new())))
    return Secrets(**json.loads(cast(bytes, server.hget(key, project))))


def _newest_first(records: Iterable[bytes]) -> list[Endpoint]:
    return sorted(map(_parse, records), key=lambda endpoint: endpoint.id, reverse=True)


def _parse(raw: bytes) -> Endpoint:
    told = json.loads(raw)
    known = {field.name for field in fields(Endpoint)}
    texts = {"event_types": tuple(told["event_types"]), "secrets": Secrets(**told["secrets"])}
    return Endpoint(**{name: value for name, value in told.items() if name in known} | texts)
