"""HTTP connections to addresses that were checked before: the name only stands in SNI and Host (speech_api §6.1)."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache
from ssl import SSLContext

import httpcore
import httpx

MOST_ADDRESSES = 4
"""They share the time to connect."""


class PinnedBackend(httpcore.AsyncNetworkBackend):
    """Connects to the first of the given addresses that answers, whatever the host is called. It resolves nothing."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = addresses[:MOST_ADDRESSES]
        self._network = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  httpcore's own interface
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        share = None if timeout is None else timeout / len(self._addresses)
        *others, last = self._addresses
        for address in others:
            with suppress(httpcore.ConnectError, httpcore.ConnectTimeout):
                return await self._network.connect_tcp(address, port, share, local_address, socket_options)
        return await self._network.connect_tcp(last, port, share, local_address, socket_options)

    async def sleep(self, seconds: float) -> None:
        await self._network.sleep(seconds)


@cache
def _trust() -> SSLContext:
    return httpx.create_ssl_context()


def pinned_pool(addresses: Sequence[str]) -> httpcore.AsyncConnectionPool:
    """A pool for one exchange. It knows no proxies, cookies or credentials, and follows no redirect."""
    return httpcore.AsyncConnectionPool(
        ssl_context=_trust(), max_connections=1, network_backend=PinnedBackend(addresses), http2=False
    )
