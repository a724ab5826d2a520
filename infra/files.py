"""Uploaded files: a record in Redis, its bytes in S3 (speech_api §5.2).

The object is registered for deletion before it is put, and given its real date together with the record; so a crash in
between leaves nothing behind.
"""

import json
import re
import time
from dataclasses import asdict, dataclass
from typing import Literal, cast

from ulid import ULID

from speechmill.infra.client import AsyncClient
from speechmill.infra.protocol import expire

Purpose = Literal["batch", "user_data"]
UPLOAD_S = 3600
"""Longest way from the registration of an object to its record."""
_ID = re.compile(r"file-[0-7][0-9A-HJKMNP-TV-Z]{25}", re.ASCII)
_PAGE = 500


@dataclass(frozen=True, slots=True)
class FileRecord:
    id: str
    project: str
    filename: str
    """As the client gave it; never part of a path or key."""
    purpose: str
    bytes: int
    created_at: int
    """Unix seconds, as `expires_at`."""
    expires_at: int | None
    place: str = ""
    """Where the bytes lie, where that is not the file's own place."""

    @property
    def key(self) -> str:
        return self.place or f"files/{self.project}/{self.id}"

    def shown(self) -> dict[str, object]:
        """The OpenAI file object."""
        fields = asdict(self)
        del fields["project"], fields["place"]
        return {"object": "file", "status": "processed", **fields}


def new_file(
    project: str, filename: str, purpose: str, size_bytes: int, expires_s: int | None, now: float
) -> FileRecord:
    """A record with an id of its own, `expires_s` seconds from going; None stays."""
    created = int(now)
    expires = None if expires_s is None else created + expires_s
    return FileRecord(f"file-{ULID.from_timestamp(now)}", project, filename, purpose, size_bytes, created, expires)


def is_file_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


async def register_upload(client: AsyncClient, file: FileRecord) -> None:
    """Before the bytes are put: they go again unless `create` follows."""
    await client.run(expire(file.key, time.time() + UPLOAD_S))


async def create(client: AsyncClient, *created: FileRecord) -> None:
    """After the bytes were put: the files are there, durably. One that was there before is replaced."""
    keys = client.keys
    pipe = client.server("control").pipeline(transaction=True)
    for file in created:
        pipe.set(keys.file(file.id), json.dumps(asdict(file)), exat=file.expires_at)
        pipe.zadd(keys.files(file.project), {file.id: 0})
        if file.expires_at is None:
            pipe.zrem(keys.expiry(), file.key)
        else:
            pipe.zadd(keys.expiry(), {file.key: file.expires_at})
    await pipe.execute()
    await client.wait_durable()


async def find(client: AsyncClient, project: str, file_id: str) -> FileRecord | None:
    """None also for what belongs to another project."""
    if not is_file_id(file_id):
        return None
    file = _parse(cast(bytes | None, await client.server("control").get(client.keys.file(file_id))))
    return file if file is not None and file.project == project else None


async def delete(client: AsyncClient, file: FileRecord) -> None:
    """The record goes now, the bytes with the next sweep."""
    keys = client.keys
    pipe = client.server("control").pipeline(transaction=True)
    pipe.delete(keys.file(file.id))
    pipe.zrem(keys.files(file.project), file.id)
    pipe.zadd(keys.expiry(), {file.key: time.time()})
    await pipe.execute()
    await client.wait_durable()


async def list_files(
    client: AsyncClient, project: str, limit: int, after: str = "", purpose: str = "", newest_first: bool = True
) -> list[FileRecord]:
    """At most `limit` files behind the one called `after`, by time of creation."""
    found: list[FileRecord] = []
    while len(found) < limit and (ids := await _ids(client, project, after, newest_first)):
        after = ids[-1]
        found += [file for file in await _records(client, project, ids) if purpose in ("", file.purpose)]
    return found[:limit]


async def _ids(client: AsyncClient, project: str, after: str, newest_first: bool) -> list[str]:
    border = f"({after}" if after else ""
    server, key = client.server("control"), client.keys.files(project)
    if newest_first:
        ids = await server.zrevrangebylex(key, border or "+", "-", start=0, num=_PAGE)
    else:
        ids = await server.zrangebylex(key, border or "-", "+", start=0, num=_PAGE)
    return [raw.decode() for raw in cast(list[bytes], ids)]


async def _records(client: AsyncClient, project: str, ids: list[str]) -> list[FileRecord]:
    """In the order of the ids. What has expired is struck from the list on the way."""
    server, keys = client.server("control"), client.keys
    raws = cast(list[bytes | None], await server.mget([keys.file(one) for one in ids]))
    records = [_parse(raw) for raw in raws]
    if gone := [one for one, record in zip(ids, records, strict=True) if record is None]:
        await server.zrem(keys.files(project), *gone)
    return [record for record in records if record is not None]


def _parse(raw: bytes | None) -> FileRecord | None:
    return FileRecord(**json.loads(raw)) if raw else None
