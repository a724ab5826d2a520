"""Runs protocol calls against the two Redis roles, sync for workers and asyncio for the API.

The functions are loaded at start and carry a digest of their source in their names, so that processes of different
versions can share a server; a server that came back empty gets them again.
"""

import hashlib
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import resources
from typing import Any, TypeVar, cast

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import ExponentialWithJitterBackoff
from redis.exceptions import BusyLoadingError, OutOfMemoryError, ReadOnlyError, ResponseError
from redis.retry import Retry

from speechmill.infra.errors import ConfigError
from speechmill.infra.keys import Keys, LogRef, Role
from speechmill.infra.protocol import Call

T = TypeVar("T")
BLOCK_MS = 1000
"""Longest blocking read; the socket timeout leaves five seconds on top of it (redis-py would retry for a minute)."""
SOCKET_TIMEOUT_S = BLOCK_MS / 1000 + 5
DURABLE_MS = 5000
UNAVAILABLE = (redis.ConnectionError, redis.TimeoutError, BusyLoadingError, OutOfMemoryError, ReadOnlyError)
"""What a server looks like that is away, restarting, or without memory or disk to write to: all of it passes."""
POOL_WAIT_S = 5.0
"""How long a call may wait for one of a process's connections."""
Entry = tuple[bytes, dict[bytes, bytes]]


PARTS = ("keys", "webhooks", "groups", "jobs", "tasks", "logs", "listing", "replies", "limits", "voices", "register")
"""Files of the function library, in the order in which the server reads them as one."""


@cache
def library() -> tuple[str, str]:
    """Source of the function library, and the prefix of its functions' names."""
    folder = resources.files("speechmill.infra").joinpath("functions")
    source = "\n".join(folder.joinpath(f"{part}.lua").read_text(encoding="utf-8") for part in PARTS)
    prefix = f"tts_{hashlib.sha256(source.encode()).hexdigest()[:10]}_"
    return source.replace("@LIBRARY@", prefix.rstrip("_")).replace("@PREFIX@", prefix), prefix


def _is_unknown_function(error: Exception) -> bool:
    return isinstance(error, ResponseError) and "function not found" in str(error).lower()


def _passing(error: ResponseError) -> ResponseError:
    """redis-py has no class for a server whose disk is full: it takes no writes, for a while."""
    return ReadOnlyError(*error.args) if "MISCONF" in str(error) else error


def _command(keys: Keys, call: Call[Any]) -> tuple[Any, ...]:
    return ("FCALL", library()[1] + call.function, 1, keys.root, *call.args)


def _function_list() -> tuple[str, ...]:
    return ("FUNCTION", "LIST", "LIBRARYNAME", library()[1].rstrip("_"))


def _options(timeout_s: float) -> dict[str, Any]:
    return {
        "socket_timeout": timeout_s,
        "socket_connect_timeout": 3,
        "health_check_interval": 0,
        "retry_on_error": [redis.ConnectionError, redis.TimeoutError, BusyLoadingError],
    }


def _check_durable(reply: Any) -> None:
    if reply[0] < 1:
        raise redis.TimeoutError("the server did not write to its disk in time")


def _together(entries: list[Entry], count: int) -> list[Entry]:
    """A chunk is not read without its marks: one that a full reply ends with is left for the next read."""
    return entries[:-1] if 1 < count == len(entries) and entries[-1][0].endswith(b"-0") else entries


def read_entries(reply: Any) -> dict[bytes, list[Entry]]:
    """Reply of XREAD by stream key; the one place that knows its shape."""
    return {key: [entry for entry in entries if entry[1]] for key, entries in reply or []}


class Client:
    """Blocking calls. One instance may serve several threads; each call takes a pooled connection."""

    def __init__(self, control_url: str, chunks_url: str, keys: Keys, timeout_s: float = SOCKET_TIMEOUT_S) -> None:
        self.keys = keys

        def connect(url: str) -> redis.Redis:
            backoff = Retry(ExponentialWithJitterBackoff(cap=0.5, base=0.02), 3)
            return redis.Redis.from_url(url, retry=backoff, **_options(timeout_s))

        control = connect(control_url)
        self._servers: dict[Role, redis.Redis] = {
            "control": control,
            "chunks": control if chunks_url == control_url else connect(chunks_url),
        }

    def server(self, role: Role) -> redis.Redis:
        return self._servers[role]

    def servers(self) -> list[tuple[Role, redis.Redis]]:
        """Each server once, under the first role it has."""
        if self._servers["control"] is self._servers["chunks"]:
            return [("control", self._servers["control"])]
        return [("control", self._servers["control"]), ("chunks", self._servers["chunks"])]

    def load(self) -> None:
        """Load the functions. Raises ConfigError when a server is too old for them."""
        for _, server in self.servers():
            try:
                if not server.execute_command(*_function_list()):  # a server without memory takes no functions
                    server.execute_command("FUNCTION", "LOAD", "REPLACE", library()[0])
            except ResponseError as error:
                if "unknown command" in str(error).lower():
                    raise ConfigError("the Redis server lacks FUNCTION: use Valkey ≥ 8 or Redis ≥ 7.2") from error
                raise

    def run(self, call: Call[T]) -> T:
        return cast(T, self.run_all([call])[0])

    def run_all(self, calls: Sequence[Call[Any]]) -> list[Any]:
        """Several calls in one round trip per server, in order; the first error is raised."""
        try:
            return self._run_all(calls)
        except ResponseError as error:
            if not _is_unknown_function(error):
                raise _passing(error) from error
            self.load()
            return self._run_all(calls)

    def _run_all(self, calls: Sequence[Call[Any]]) -> list[Any]:
        if len(calls) == 1:
            call = calls[0]
            return [call.parse(self._servers[call.on].execute_command(*_command(self.keys, call)))]
        answers: dict[int, Any] = {}
        for server, indices in _by_server(calls, self._servers):
            pipe = server.pipeline(transaction=False)
            for index in indices:
                pipe.execute_command(*_command(self.keys, calls[index]))
            answers.update(zip(indices, pipe.execute(), strict=True))
        return [call.parse(answers[index]) for index, call in enumerate(calls)]

    def read_log(self, log: LogRef, after: str, count: int) -> list[Entry]:
        """Entries of a log behind entry id `after`."""
        reply = self._servers[log.on].xrange(self.keys.log(log), f"({after}", "+", count)
        return _together(cast(list[Entry], reply), count)

    def read_hash(self, key: str) -> dict[bytes, bytes]:
        """A control record; empty when there is none."""
        return cast(dict[bytes, bytes], self._servers["control"].hgetall(key))

    def read_fields(self, key: str, fields: Sequence[str]) -> list[bytes | None]:
        """Some of a control record; None for each that there is not."""
        return cast(list[bytes | None], self._servers["control"].hmget(key, list(fields))) if fields else []

    def read_set(self, key: str) -> set[bytes]:
        return cast(set[bytes], self._servers["control"].smembers(key))

    def wait_durable(self) -> None:
        """Return when everything written so far is in the append-only file on disk. Raises when the disk takes long."""
        _check_durable(self._servers["control"].execute_command("WAITAOF", 1, 0, DURABLE_MS))

    def close(self) -> None:
        for _, server in self.servers():
            server.close()


class AsyncClient:
    """The same for asyncio; see Client."""

    def __init__(self, control_url: str, chunks_url: str, keys: Keys, max_connections: int = 64) -> None:
        self.keys = keys

        def connect(url: str) -> redis.asyncio.Redis:
            backoff = AsyncRetry(ExponentialWithJitterBackoff(cap=0.5, base=0.02), 3)
            # a burst of requests waits for connections; the ordinary pool would refuse them
            pool = redis.asyncio.BlockingConnectionPool.from_url(
                url, retry=backoff, max_connections=max_connections, timeout=POOL_WAIT_S, **_options(SOCKET_TIMEOUT_S)
            )
            return redis.asyncio.Redis.from_pool(pool)

        control = connect(control_url)
        self._servers: dict[Role, redis.asyncio.Redis] = {
            "control": control,
            "chunks": control if chunks_url == control_url else connect(chunks_url),
        }

    def server(self, role: Role) -> redis.asyncio.Redis:
        return self._servers[role]

    async def load(self) -> None:
        for server in set(self._servers.values()):
            if not await server.execute_command(*_function_list()):
                await server.execute_command("FUNCTION", "LOAD", "REPLACE", library()[0])

    async def run(self, call: Call[T]) -> T:
        command = _command(self.keys, call)
        server = self._servers[call.on]
        try:
            return call.parse(await server.execute_command(*command))
        except ResponseError as error:
            if not _is_unknown_function(error):
                raise _passing(error) from error
            await self.load()
            return call.parse(await server.execute_command(*command))

    async def read_log(self, log: LogRef, after: str, count: int) -> list[Entry]:
        reply = await self._servers[log.on].xrange(self.keys.log(log), f"({after}", "+", count)
        return _together(cast(list[Entry], reply), count)

    async def read_hash(self, key: str) -> dict[bytes, bytes]:
        return cast(dict[bytes, bytes], await self._servers["control"].hgetall(key))

    async def read_set(self, key: str) -> set[bytes]:
        return cast(set[bytes], await self._servers["control"].smembers(key))

    async def wait_durable(self) -> None:
        _check_durable(await self._servers["control"].execute_command("WAITAOF", 1, 0, DURABLE_MS))

    async def close(self) -> None:
        for server in set(self._servers.values()):
            await server.aclose()


def _by_server(calls: Sequence[Call[Any]], servers: dict[Role, redis.Redis]) -> Iterable[tuple[redis.Redis, list[int]]]:
    groups: dict[int, list[int]] = {}
    for index, call in enumerate(calls):
        groups.setdefault(id(servers[call.on]), []).append(index)
    return [(servers[calls[indices[0]].on], indices) for indices in groups.values()]
