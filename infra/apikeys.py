"""API keys in Redis: only their SHA-256 is kept, with what they may do."""

import hashlib
import secrets
import time
from typing import cast

from speechmill.configs.settings import ApiKey
from speechmill.infra.client import Client
from speechmill.infra.keys import new_id

SECRET_BYTES = 32


class KeyRecord(ApiKey):
    """A key as it is stored; the key itself is told once, when it is made."""

    id: str
    created_at: int
    """Unix seconds."""
    hint: str
    """The last characters of the key, for people to tell keys apart."""


def digest(key: str) -> str:
    """What a key is looked up by."""
    return hashlib.sha256(key.encode()).hexdigest()


def create_key(client: Client, wanted: ApiKey) -> tuple[KeyRecord, str]:
    """Make a key. Answers its record and the key itself, which nobody can read again."""
    key = f"sk-{secrets.token_urlsafe(SECRET_BYTES)}"
    fields = wanted.model_dump(exclude={"key"})
    record = KeyRecord(**fields, id=new_id("key"), created_at=int(time.time()), hint=key[-4:])
    client.server("control").hset(client.keys.api_keys(), digest(key), record.model_dump_json(exclude={"key"}))
    return record, key


def list_keys(client: Client) -> list[KeyRecord]:
    """Oldest first."""
    stored = client.read_hash(client.keys.api_keys()).values()
    return sorted(map(KeyRecord.model_validate_json, stored), key=lambda record: record.id)


def revoke_key(client: Client, key_id: str) -> bool:
    """False when there is no key with this id."""
    server, name = client.server("control"), client.keys.api_keys()
    for field, stored in cast(dict[bytes, bytes], server.hgetall(name)).items():
        if KeyRecord.model_validate_json(stored).id == key_id:
            return bool(server.hdel(name, field.decode()))
    return False
