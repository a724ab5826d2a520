"""Which URLs the farm may fetch from or post to: never its own network (speech_api §6.1).

A URL is checked, resolved once, and every address of its host is checked; the caller connects to one of these
addresses and to nothing else, so that a name which changes its mind between check and connection gains nothing.
"""

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

import httpx

from speechmill.configs.settings import Fetch
from speechmill.infra.errors import ConfigError

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
Resolver = Callable[[str], Awaitable[list[str]]]
"""From a host name to all of its addresses. Raises OSError."""

MAX_URL = 2048
_PORTS = {"http": 80, "https": 443}
_BLOCKED4 = tuple(
    IPv4Network(range_)
    for range_ in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
    )
)
_GLOBAL6 = IPv6Network("2000::/3")
"""All of IPv6 that is public lies in here; unspecified, loopback, local and multicast addresses do not."""
_DOCUMENTATION6 = (IPv6Network("2001:db8::/32"), IPv6Network("3fff::/20"))
_MAPPED, _NAT64 = IPv6Network("::ffff:0:0/96"), IPv6Network("64:ff9b::/96")
_6TO4, _TEREDO = IPv6Network("2002::/16"), IPv6Network("2001::/32")
_NUMERIC = re.compile(r"(0x[0-9a-f]*|[0-9]+)(\.(0x[0-9a-f]*|[0-9]+)){0,3}\.?", re.ASCII | re.IGNORECASE)
# names that take long to resolve must not hold the threads that encode audio
_RESOLVERS = ThreadPoolExecutor(8, thread_name_prefix="resolve")


class Forbidden(Exception):
    """The URL is against the policy. The text may be shown to the caller: it says which rule, and no address."""


async def system_resolver(host: str) -> list[str]:
    """What the operating system answers."""
    ask = partial(socket.getaddrinfo, host.encode(), None, type=socket.SOCK_STREAM)  # bytes: IDNA has been applied
    found = await asyncio.get_running_loop().run_in_executor(_RESOLVERS, ask)
    return [str(entry[4][0]) for entry in found]


def networks(setting: str, ranges: Iterable[str]) -> tuple[Network, ...]:
    """Raises ConfigError for a range that is none."""
    try:
        return tuple(map(ip_network, ranges))
    except ValueError as error:
        raise ConfigError(f"{setting}: {error}") from None


@dataclass(frozen=True, slots=True)
class AddressPolicy:
    """What may be reached. Every port and range beyond the public web is opened by a setting."""

    domains: frozenset[str] = frozenset()
    """Only these hosts, as they are written; empty for any."""
    ports: frozenset[int] = frozenset(_PORTS.values())
    opened: tuple[Network, ...] = ()
    """Ranges that are reachable although they are not public."""
    opened_by: str = "fetch.allowed_cidrs"
    """The setting that names them, for who is refused."""
    resolve: Resolver = system_resolver

    @classmethod
    def of(cls, settings: Fetch) -> "AddressPolicy":
        """Raises ConfigError for a range that is none."""
        opened = networks("fetch.allowed_cidrs", settings.allowed_cidrs)
        domains = frozenset(domain.casefold() for domain in settings.allowed_domains)
        return cls(domains, frozenset(_PORTS.values()) | set(settings.allowed_ports), opened)

    def check_url(self, text: str) -> httpx.URL:
        """The URL, if it is of a kind that may be asked for at all. Raises Forbidden."""
        if len(text) > MAX_URL:
            raise Forbidden(f"the URL is longer than {MAX_URL} characters")
        try:
            url = httpx.URL(text)
            host = url.host  # decoded only now, which may fail
        except (httpx.InvalidURL, UnicodeError):
            raise Forbidden("the URL is malformed") from None
        if url.scheme not in _PORTS or not host:
            raise Forbidden("only http and https URLs are fetched")
        if url.userinfo:
            raise Forbidden("the URL must not hold a user name or password")
        if (_PORTS[url.scheme] if url.port is None else url.port) not in self.ports:
            raise Forbidden("the URL's port is not among fetch.allowed_ports")
        if self.domains and host.casefold().rstrip(".") not in self.domains:
            raise Forbidden("the URL's host is not among fetch.allowed_domains")
        return url

    async def addresses(self, url: httpx.URL) -> list[str]:
        """The addresses of a URL's host, each checked. Raises Forbidden if one of them is not public, OSError if there
        is none."""
        host = url.raw_host.decode("ascii")
        found = [_literal(host)] if _is_literal(host) else [ip_address(text) for text in await self.resolve(host)]
        if not found:
            raise OSError("the name has no address")
        if not all(map(self.allows, found)):
            raise Forbidden(f"the URL leads to an address that is not public, and that {self.opened_by} does not open")
        return [str(address) for address in found]

    def allows(self, address: Address) -> bool:
        """Whether it is public or opened, and every IPv4 address inside it too."""
        if any(address in network for network in self.opened):
            return True
        if isinstance(address, IPv4Address):
            return not any(address in network for network in _BLOCKED4)
        embedded = _embedded(address)
        if embedded:
            return all(map(self.allows, embedded))
        return address in _GLOBAL6 and not any(address in network for network in _DOCUMENTATION6)


def _embedded(address: IPv6Address) -> list[IPv4Address]:
    """The IPv4 addresses that packets to this one may end at."""
    value = int(address)
    if address in _MAPPED or address in _NAT64:
        return [IPv4Address(value & 0xFFFFFFFF)]
    if address in _6TO4:
        return [IPv4Address(value >> 80 & 0xFFFFFFFF)]
    if address in _TEREDO:  # the server, and the client with all bits flipped
        return [IPv4Address(value >> 64 & 0xFFFFFFFF), IPv4Address(~value & 0xFFFFFFFF)]
    return []


def _is_literal(host: str) -> bool:
    return ":" in host or _NUMERIC.fullmatch(host) is not None


def _literal(host: str) -> Address:
    """An address as it is written, in IPv4's older forms too: fewer parts, octal, hexadecimal. Raises Forbidden."""
    try:
        return ip_address(host) if ":" in host else IPv4Address(socket.inet_aton(host.rstrip(".")))
    except (OSError, ValueError):
        raise Forbidden("the URL's host is a malformed address") from None
