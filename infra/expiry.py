"""When stored objects go: a sorted set of keys by due time, registered before the upload, swept by Celery."""

import time
from typing import cast

from speechmill.infra.client import Client
from speechmill.infra.objects import ObjectStore
from speechmill.infra.protocol import expire

MOST = 1000


def register_object(client: Client, key: str, due: float) -> None:
    """`due` in Unix seconds. A later registration of the same key replaces the earlier one."""
    client.run(expire(key, due))


def sweep_objects(client: Client, objects: ObjectStore) -> int:
    """Delete what is due, at most `MOST` at a time. Answers how many went. An entry goes after its object."""
    server, key = client.server("control"), client.keys.expiry()
    gone = 0
    while due := cast(list[bytes], server.zrangebyscore(key, "-inf", time.time(), start=0, num=MOST)):
        objects.delete_many([name.decode() for name in due])
        server.zrem(key, *due)
        gone += len(due)
    return gone
