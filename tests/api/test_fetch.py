"""Fetching by URL: what may be reached, and what a server may do to us."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_address, ip_network

import httpx
import pytest

from speechmill.api.errors import ApiError
from speechmill.api.references import fetch as fetch_module
from speechmill.api.references.fetch import Fetched, Validators, fetch
from speechmill.configs.settings import Fetch
from speechmill.infra.addresses import AddressPolicy, Forbidden
from speechmill.infra.errors import ConfigError

LIMIT = 1000
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nETag: \"v1\"\r\nLast-Modified: now\r\n\r\nclip"
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

BLOCKED = [
    *("0.0.0.0", "0.255.255.255", "10.0.0.0", "10.255.255.255", "100.64.0.0", "100.127.255.255", "127.0.0.1"),
    *("127.255.255.255", "169.254.0.0", "169.254.169.254", "172.16.0.0", "172.31.255.255", "192.0.0.1", "192.0.2.1"),
    *("192.88.99.1", "192.168.0.0", "192.168.255.255", "198.18.0.0", "198.19.255.255", "198.51.100.1", "203.0.113.1"),
    *("224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255"),
    *("::", "::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a00:1"),
    *("64:ff9b:1::1", "2002:7f00:1::", "2002:a00:1::1", "fc00::1", "fdff::1", "fe80::1", "fe80::1%eth0", "fec0::1"),
    *("ff02::1", "2001:db8::1", "3fff::1", "100::1"),
    "2001:0:7f00:1::f7f7:f7f7",  # Teredo with the server 127.0.0.1 and the client 8.8.8.8
    "2001:0:808:808::80ff:fffe",  # and the other way round
]
PUBLIC = [
    *("1.0.0.0", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255"),
    *("169.253.255.255", "172.15.255.255", "172.32.0.0", "192.167.255.255", "198.17.255.255", "223.255.255.255"),
    *("2606:4700::1111", "2a00::1", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"),
    "2001:0:808:808::f7f7:f7f7",
]


@pytest.mark.parametrize("address", BLOCKED)
def test_an_address_that_is_not_public_is_blocked(address: str) -> None:
    assert not AddressPolicy().allows(ip_address(address))


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_allowed(address: str) -> None:
    assert AddressPolicy().allows(ip_address(address))


def test_a_setting_opens_a_range_also_where_it_is_embedded() -> None:
    policy = AddressPolicy.of(Fetch(allowed_cidrs=("10.1.0.0/16",)))
    assert policy.allows(ip_address("10.1.2.3"))
    assert policy.allows(ip_address("::ffff:10.1.2.3"))
    assert not policy.allows(ip_address("10.2.0.1"))


def test_a_range_that_is_none_is_an_error_of_the_settings() -> None:
    with pytest.raises(ConfigError, match=r"fetch\.allowed_cidrs"):
        AddressPolicy.of(Fetch(allowed_cidrs=("10.0.0.0/64",)))


async def never(host: str) -> list[str]:
    raise AssertionError(f"{host} is resolved")


def refused(url: str, policy: AddressPolicy) -> ApiError:
    with pytest.raises(ApiError) as caught:
        asyncio.run(fetch(url, policy, LIMIT, param="items[1].ref_audio"))
    assert (caught.value.status, caught.value.param) == (400, "items[1].ref_audio")
    return caught.value


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "http://127.0.0.1./",
        "http://127.1/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0x7f.0.0.1/",
        "http://0177.0.0.1/",
        "http://017700000001/",
        "http://0/",
        "http://09.1.1.1/",
        "http://1.2.3.4.5/",
        "http://[::1]/",
        "http://[::]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:7f00:1]/",
        "http://[fe80::1%25eth0]/",
        "http://１２７.0.0.1/",
        "http://169.254.169.254/latest/meta-data/",
        "http://user@8.8.8.8/",
        "http://user:word@8.8.8.8/",
        "http://8.8.8.8:22/",
        "http://8.8.8.8:0/",
        "http://8.8.8.8:99999/",
        "https://8.8.8.8:8443/",
        "ftp://8.8.8.8/",
        "http:///clip",
        "http://xn--/",
        "http:8.8.8.8",
        "http://8.8.8.8/\n",
        "http://8.8.8.8/" + "a" * 2048,
    ],
)
def test_a_forbidden_url_is_refused_before_anything_is_resolved(url: str) -> None:
    async def unknown(host: str) -> list[str]:
        assert host == "1.2.3.4.5"  # five parts are a name like any other
        return ["127.0.0.1"]

    error = refused(url, AddressPolicy(resolve=unknown))
    assert error.code == "ref_audio_forbidden"
    assert not any(address in error.message for address in ("127", "169.254", "::1"))


def test_only_listed_domains_are_fetched_from_when_some_are_listed() -> None:
    policy = AddressPolicy(domains=frozenset({"clips.example"}), resolve=never)
    for host in ("example.com", "evil.clips.example", "clips.example.evil"):
        assert refused(f"http://{host}/", policy).code == "ref_audio_forbidden"
    assert policy.check_url("http://CLIPS.example/").host == "clips.example"


def test_one_address_that_is_not_public_spoils_a_name() -> None:
    async def mixed(host: str) -> list[str]:
        return ["8.8.8.8", "10.0.0.7"]

    error = refused("http://clips.example/", AddressPolicy(resolve=mixed))
    assert error.code == "ref_audio_forbidden"
    assert "10.0.0.7" not in error.message


def test_a_name_that_is_unknown_is_a_failed_fetch() -> None:
    async def unknown(host: str) -> list[str]:
        raise OSError("no such host as 10.0.0.7")

    error = refused("http://clips.example/", AddressPolicy(resolve=unknown))
    assert error.code == "ref_audio_fetch_failed"
    assert "10.0.0.7" not in error.message


class Site:
    """A server on 127.0.0.1 that the policy lets us reach under any name."""

    def __init__(self, talk: Talk) -> None:
        self.talk = talk
        self.requests: list[bytes] = []
        self.resolved: list[str] = []
        self.answers = ["127.0.0.1"]
        self.port = 0
        self._talks: list[asyncio.Task[None] | None] = []

    async def read(self, reader: asyncio.StreamReader) -> bytes:
        return await reader.readuntil(b"\r\n\r\n")

    async def _resolve(self, host: str) -> list[str]:
        self.resolved.append(host)
        return self.answers

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._talks.append(asyncio.current_task())
        with suppress(OSError, asyncio.IncompleteReadError):
            self.requests.append(await self.read(reader))
            await self.talk(reader, writer)
            await writer.drain()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[AddressPolicy]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        async with server:
            try:
                yield AddressPolicy(
                    ports=frozenset({80, 443, self.port}), opened=(ip_network("127.0.0.0/30"),), resolve=self._resolve
                )
            finally:
                await asyncio.gather(*filter(None, self._talks))

    def fetch(self, path: str = "/clip.wav", known: Validators | None = None) -> Fetched | None:
        async def main() -> Fetched | None:
            async with self.open() as policy:
                return await fetch(f"http://clips.example:{self.port}{path}", policy, LIMIT, known)

        return asyncio.run(main())

    def refusal(self, path: str = "/") -> str:
        with pytest.raises(ApiError) as caught:
            self.fetch(path)
        assert "127.0.0.1" not in caught.value.message
        return caught.value.code


def saying(*answers: bytes) -> Site:
    """A site that gives one answer after the other; `PORT` in it stands for its own."""
    left = list(answers)

    async def talk(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(left.pop(0).replace(b"PORT", str(site.port).encode()))

    site = Site(talk)
    return site


def redirect(to: str, status: str = "302 Found") -> bytes:
    return f"HTTP/1.1 {status}\r\nLocation: {to}\r\nSet-Cookie: a=b\r\nContent-Length: 0\r\n\r\n".encode()


def test_a_clip_comes_with_what_it_takes_to_ask_again() -> None:
    site = saying(OK)
    fetched = site.fetch("/a b.wav?x=1#part")
    url = f"http://clips.example:{site.port}/a%20b.wav?x=1#part"
    assert fetched == Fetched(b"clip", Validators(url, '"v1"', "now"))
    head = site.requests[0].decode().lower()
    assert head.startswith("get /a%20b.wav?x=1 http/1.1\r\n")
    assert f"host: clips.example:{site.port}\r\n" in head
    assert "accept-encoding: identity\r\n" in head
    assert "authorization" not in head


def test_a_name_that_changes_its_address_is_asked_for_it_once() -> None:
    site = saying(OK)

    async def turning(host: str) -> list[str]:
        site.resolved.append(host)
        return ["127.0.0.1"] if len(site.resolved) == 1 else ["169.254.169.254"]

    site._resolve = turning  # type: ignore[method-assign]
    assert site.fetch() is not None
    assert site.resolved == ["clips.example"]


def test_the_second_address_is_tried_when_the_first_does_not_answer() -> None:
    site = saying(OK)
    site.answers = ["127.0.0.2", "127.0.0.1"]
    assert site.fetch() is not None


def test_tls_names_the_host_and_not_the_address() -> None:
    hello = b""

    async def main() -> None:
        site = saying()
        site.read = listen  # type: ignore[method-assign]
        async with site.open() as policy:
            with pytest.raises(ApiError) as caught:
                await fetch(f"https://clips.example:{site.port}/", policy, LIMIT)
            assert caught.value.code == "ref_audio_fetch_failed"

    async def listen(reader: asyncio.StreamReader) -> bytes:
        nonlocal hello
        hello = await reader.read(4096)
        raise ConnectionAbortedError

    asyncio.run(main())
    assert b"clips.example" in hello
    assert b"127.0.0.1" not in hello


def test_three_redirects_are_followed_and_each_host_is_resolved_anew() -> None:
    site = saying(
        redirect("/two"),
        redirect("//other.example:PORT/three", "301 Moved"),
        redirect("http://last.example:PORT/", "307 Temporary"),
        OK,
    )
    fetched = site.fetch("/one")
    assert fetched is not None
    assert fetched.validators.url == f"http://last.example:{site.port}/"
    assert site.resolved == ["clips.example", "clips.example", "other.example", "last.example"]
    assert not any(b"ookie" in request for request in site.requests)


def test_a_fourth_redirect_is_not_followed() -> None:
    assert saying(*[redirect("/again")] * 4, OK).refusal() == "ref_audio_fetch_failed"


@pytest.mark.parametrize(
    "to",
    [
        "http://10.0.0.1/",
        "http://0x0a000001/",
        "http://[::1]/",
        "http://clips.example:22/",
        "http://user@clips.example/",
        "file:///etc/passwd",
        "gopher://clips.example/",
    ],
)
def test_a_redirect_is_checked_like_the_first_url(to: str) -> None:
    assert saying(redirect(to)).refusal() == "ref_audio_forbidden"


def test_a_redirect_must_not_leave_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    async def exchange(url: httpx.URL, *_: object) -> httpx.URL:
        return httpx.URL("http://clips.example/")

    monkeypatch.setattr(fetch_module, "_exchange", exchange)
    assert refused("https://clips.example/", AddressPolicy(resolve=never)).code == "ref_audio_forbidden"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 6\r\n\r\nsecret",
        b"HTTP/1.1 206 Partial Content\r\nContent-Length: 4\r\n\r\nclip",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 304 Not Modified\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: http://[x/\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nclip",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nclip",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 200_000 + b"\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"",
    ],
)
def test_anything_but_a_plain_200_is_a_failed_fetch(answer: bytes) -> None:
    assert saying(answer).refusal() == "ref_audio_fetch_failed"


def test_a_declared_size_beyond_the_limit_is_refused_unread() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n")
        await writer.drain()
        await reader.read()

    assert Site(talk).refusal() == "ref_audio_too_large"


def test_a_body_without_end_is_read_to_the_limit() -> None:
    async def talk(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"a" * 100)
            await writer.drain()

    assert Site(talk).refusal() == "ref_audio_too_large"


@pytest.mark.parametrize("size", [LIMIT, LIMIT + 1])
def test_the_limit_itself_still_fits(size: int) -> None:
    site = saying(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + b"a" * size)
    if size == LIMIT:
        fetched = site.fetch()
        assert fetched is not None
        assert len(fetched.content) == LIMIT
    else:
        assert site.refusal() == "ref_audio_too_large"


@pytest.mark.parametrize("begun", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ncl"])
def test_a_server_that_falls_silent_is_given_up(begun: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_module, "IDLE_S", 0.05)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(begun)
        await writer.drain()
        await reader.read()

    assert Site(talk).refusal() == "ref_audio_fetch_failed"


def test_a_server_that_drips_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_module, "TOTAL_S", 0.2)

    async def talk(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n")
        while True:
            writer.write(b"a")
            await writer.drain()
            await asyncio.sleep(0.02)

    assert Site(talk).refusal() == "ref_audio_fetch_failed"


def test_content_that_is_still_the_same_is_not_sent_again() -> None:
    site = saying(b"HTTP/1.1 304 Not Modified\r\n\r\n")

    async def main() -> Fetched | None:
        async with site.open() as policy:
            url = f"http://clips.example:{site.port}/"
            return await fetch(url, policy, LIMIT, Validators(url, '"v1"', "then"))

    assert asyncio.run(main()) is None
    assert b'If-None-Match: "v1"\r\n' in site.requests[0]
    assert b"If-Modified-Since: then\r\n" in site.requests[0]


def test_validators_are_for_the_place_that_gave_them() -> None:
    site = saying(OK)
    fetched = site.fetch(known=Validators("http://other.example/", '"v1"', "then"))
    assert fetched is not None
    assert b"If-None-Match" not in site.requests[0]


def test_validators_that_cannot_be_sent_back_are_left_out() -> None:
    fetched = saying(OK.replace(b'"v1"', b'"\xe9"')).fetch()
    assert fetched is not None
    assert (fetched.validators.etag, fetched.validators.last_modified) == ("", "now")


def test_a_policy_says_why_without_saying_where() -> None:
    with pytest.raises(Forbidden, match="port"):
        AddressPolicy().check_url("http://intranet.example:8080/")


def test_a_policy_names_the_setting_that_would_allow_it() -> None:
    listed = AddressPolicy(domains=frozenset({"cdn.example"}))
    for policy, url, setting in (
        (AddressPolicy(), "http://example.com:8080/", "fetch.allowed_ports"),
        (AddressPolicy(), "http://10.0.0.1/", "fetch.allowed_cidrs"),
        (listed, "http://example.com/", "fetch.allowed_domains"),
    ):
        assert setting in str(refused(url, policy))
