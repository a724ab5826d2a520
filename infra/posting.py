"""Posting signed events to other people's servers, and never to our own network (speech_api §5.5, §6.1)."""

import asyncio
import contextlib
import email.utils
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from ipaddress import ip_address

import httpcore
import httpx

from speechmill.configs.settings import Settings
from speechmill.infra.addresses import AddressPolicy, Forbidden, Resolver, networks, system_resolver
from speechmill.infra.pinned import pinned_pool
from speechmill.infra.signatures import sign

RESOLVE_S = 3.0
_EVERY_PORT = frozenset(range(1, 65_536))


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a post."""

    status_code: int | None
    error: str = ""
    """Why there is no status. It tells nothing about what was found at the address."""
    retry_after_s: float = 0.0

    @property
    def is_success(self) -> bool:
        return self.status_code is not None and 200 <= self.status_code < 300


class Poster:
    """Knows what may be posted to, and how long an answer may take."""

    def __init__(self, settings: Settings, resolve: Resolver = system_resolver) -> None:
        """Raises ConfigError for bad `webhooks.*` or `fetch.*`."""
        public = AddressPolicy.of(settings.fetch)
        self._public_ports = public.ports
        setting = "webhooks.allowed_cidrs"
        opened = networks(setting, settings.webhooks.allowed_cidrs)
        self._policy = replace(public, ports=_EVERY_PORT, opened=opened, opened_by=setting, resolve=resolve)
        self._allow_http = settings.webhooks.allow_http
        self._timeout_s = settings.webhooks.timeout_s

    async def check(self, url: str) -> None:
        """Whether events may be sent there. Raises Forbidden. A name that has no address now may have one later."""
        parsed = self._url(url)
        with contextlib.suppress(OSError):
            async with asyncio.timeout(RESOLVE_S):
                await self._addresses(parsed)

    async def post(self, url: str, secrets: Iterable[str], message_id: str, body: bytes) -> Answer:
        """One try, signed now. Redirects are not followed; of the answer only its head is read."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._exchange(self._url(url), secrets, message_id, body)
        except Forbidden as error:
            return Answer(None, str(error))
        except (TimeoutError, httpcore.TimeoutException):
            return Answer(None, "the server took too long")
        except (OSError, httpcore.NetworkError, httpcore.ProtocolError):
            return Answer(None, "the server could not be reached")

    async def _exchange(self, url: httpx.URL, secrets: Iterable[str], message_id: str, body: bytes) -> Answer:
        addresses = await self._addresses(url)
        timestamp = int(time.time())
        headers = {
            "Host": url.netloc.decode("ascii"),
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            "User-Agent": "speechmill",
            "webhook-id": message_id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": sign(secrets, message_id, timestamp, body),
        }
        target = httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
        timeout = dict.fromkeys(("connect", "read", "write", "pool"), self._timeout_s)
        async with (
            pinned_pool(addresses) as pool,
            pool.stream(
                "POST", target, headers=list(headers.items()), content=body, extensions={"timeout": timeout}
            ) as response,
        ):
            wait = httpx.Headers(response.headers).get("retry-after", "")
            return Answer(response.status, retry_after_s=retry_after_s(wait, time.time()))

    def _url(self, text: str) -> httpx.URL:
        url = self._policy.check_url(text)
        if url.scheme != "https" and not self._allow_http:
            raise Forbidden("the URL must be https, unless the setting webhooks.allow_http is true")
        return url

    async def _addresses(self, url: httpx.URL) -> list[str]:
        """Every one checked. What is opened by a setting is so on any port."""
        found = await self._policy.addresses(url)
        port = url.port or (443 if url.scheme == "https" else 80)
        if port not in self._public_ports and not all(map(self._is_opened, found)):
            raise Forbidden("the URL's port is not among fetch.allowed_ports")
        return found

    def _is_opened(self, address: str) -> bool:
        return any(ip_address(address) in network for network in self._policy.opened)


def retry_after_s(header: str, now: float) -> float:
    """How long a `Retry-After` header asks to wait; 0 for what is neither number nor date. `now` in Unix seconds."""
    text = header.strip()
    if text.isascii() and text.isdecimal():
        return float(text[:10])
    try:
        return max(email.utils.parsedate_to_datetime(text).timestamp() - now, 0.0)
    except (ValueError, OverflowError):
        return 0.0
