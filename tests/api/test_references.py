"""Reference audio in every form that a request may give it, on the real servers."""

import asyncio
import base64
import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechmill.api.callers import ANYBODY, Caller
from speechmill.api.errors import ApiError
from speechmill.api.farm import FarmState
from speechmill.api.references import remote
from speechmill.api.references.clip import Clip
from speechmill.api.references.decode import decode_clip
from speechmill.api.references.load import keep_clip, load_reference
from speechmill.api.references.remote import RemoteClips
from speechmill.configs.settings import Fetch, Limits, Media, Settings
from speechmill.infra import files
from speechmill.infra.embedded import EmbeddedS3, EmbeddedValkey

from .clips import wav

CLIP = wav(1.5, 16_000)
TEXT = base64.b64encode(CLIP).decode()
SETTINGS = Settings()
SHA256 = asyncio.run(decode_clip(CLIP, SETTINGS)).sha256
STRANGER = replace(ANYBODY, scopes=frozenset({"speech"}))


def load(source: str, settings: Settings = SETTINGS, caller: Caller = ANYBODY) -> Clip:
    """For what needs no server."""
    farm = FarmState.__new__(FarmState)
    farm.settings, farm.remote = settings, RemoteClips(settings)
    return asyncio.run(load_reference(source, farm, caller, "items[2].ref_audio"))


def refusal(source: str, settings: Settings = SETTINGS, caller: Caller = ANYBODY) -> tuple[int, str]:
    with pytest.raises(ApiError) as caught:
        load(source, settings, caller)
    assert caught.value.param == "items[2].ref_audio"
    return caught.value.status, caught.value.code


class Bench:
    """A farm's state on the real servers."""

    def __init__(self, valkey: EmbeddedValkey, s3: EmbeddedS3, bucket: str, prefix: str) -> None:
        self.settings = settings = Settings()
        settings.redis.control_url, settings.redis.prefix = valkey.url, prefix
        settings.s3.endpoint_url, settings.s3.bucket = s3.endpoint_url, bucket
        settings.s3.access_key, settings.s3.secret_key = s3.access_key, s3.secret_key

    def run(self, talk: Callable[[FarmState], Awaitable[None]]) -> None:
        async def main() -> None:
            farm = FarmState(self.settings)
            await farm.start()
            try:
                await talk(farm)
            finally:
                await farm.stop()

        asyncio.run(main())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """What `file://` may reach, with something beside it."""
    root = tmp_path / "media"
    (root / "deep").mkdir(parents=True)
    (root / "a clip.wav").write_bytes(CLIP)
    (root / "deep" / "clip.wav").write_bytes(CLIP)
    (root / "inner.wav").symlink_to(root / "deep" / "clip.wav")
    (tmp_path / "secret.wav").write_bytes(CLIP)
    (root / "outer.wav").symlink_to(tmp_path / "secret.wav")
    (root / "up").symlink_to(tmp_path)
    os.mkfifo(root / "pipe.wav")
    (tmp_path / "media-too").mkdir()
    (tmp_path / "media-too" / "clip.wav").write_bytes(CLIP)
    return root


@pytest.fixture
def rooted(root: Path) -> Settings:
    return Settings(media=Media(local_root=str(root)))


@pytest.fixture
def bench(valkey: EmbeddedValkey, s3: EmbeddedS3, bucket: str, prefix: str) -> Bench:
    return Bench(valkey, s3, bucket, prefix)


@pytest.mark.parametrize("head", ["", "data:audio/wav;base64,", "data:;base64,", "DATA:audio/wav;codecs=1;BASE64,"])
def test_base64_is_taken_bare_and_in_a_data_url(head: str) -> None:
    assert load(head + TEXT).sha256 == SHA256


@pytest.mark.parametrize(
    "source",
    [
        "",
        " ",
        TEXT[:-5],
        TEXT + "=",
        TEXT + "\n",
        TEXT[:100] + " " + TEXT[100:],
        TEXT.replace("A", "-", 1),
        "/etc/passwd",
        "clip.wav",
        "Ünïcode",
        "data:audio/wav," + TEXT,
        "data:audio/wav;base64" + TEXT,
        "data:" + "a" * 300 + ";base64," + TEXT,
        "ftp://example.com/clip.wav",
        "s3://bucket/clip.wav",
        "file:clip.wav",
        "javascript:alert(1)",
        "gopher:clip",
        base64.b64encode(b"no sound at all").decode(),
    ],
)
def test_what_is_no_reference_is_invalid(source: str) -> None:
    assert refusal(source) == (400, "ref_audio_invalid")


def test_base64_beyond_the_limit_is_refused_undecoded() -> None:
    tight = Settings(limits=Limits(ref_audio_bytes=len(CLIP) - 3))
    for source in (TEXT, "data:audio/wav;base64," + "!" * len(TEXT)):
        assert refusal(source, tight) == (400, "ref_audio_too_large")


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("", "a%20clip.wav"),
        ("localhost", "deep/clip.wav"),
        ("LOCALHOST", "inner.wav"),
        ("", "deep/../deep/./clip.wav"),
    ],
)
def test_a_file_below_the_root_is_read(rooted: Settings, root: Path, host: str, name: str) -> None:
    assert load(f"file://{host}{root}/{name}", rooted).sha256 == SHA256


@pytest.mark.parametrize(
    "name",
    [
        "missing.wav",
        "outer.wav",
        "up/secret.wav",
        "../secret.wav",
        "%2e%2e/secret.wav",
        "../media-too/clip.wav",
        "pipe.wav",
        "deep",
        "",
        "a%20clip.wav%00",
        "%ff",
        "deep/clip.wav/more",
    ],
)
def test_what_is_no_file_below_the_root_is_one_and_the_same_error(rooted: Settings, root: Path, name: str) -> None:
    with pytest.raises(ApiError) as caught:
        load(f"file://{root}/{name}", rooted)
    error = caught.value
    assert (error.status, error.code) == (403, "local_media_forbidden")
    assert error.message == (
        "items[2].ref_audio: this file may not be read; it must lie below media.local_root, and the key have the scope "
        "local_media"
    )


def test_local_files_are_on_this_machine_only(rooted: Settings, root: Path) -> None:
    assert refusal(f"file://other.example{root}/a%20clip.wav", rooted) == (403, "local_media_forbidden")


def test_local_files_need_the_setting_and_the_scope(rooted: Settings, root: Path) -> None:
    source = f"file://{root}/a%20clip.wav"
    assert refusal(source, rooted, STRANGER) == (403, "local_media_forbidden")
    assert refusal(source) == (403, "local_media_forbidden")


def test_a_local_file_beyond_the_limit_is_too_large(rooted: Settings, root: Path) -> None:
    rooted.limits = Limits(ref_audio_bytes=len(CLIP) - 1)
    assert refusal(f"file://{root}/deep/clip.wav", rooted) == (400, "ref_audio_too_large")


def test_an_uploaded_file_is_a_reference_for_its_own_project(bench: Bench) -> None:
    file = files.new_file("default", "clip.wav", "user_data", len(CLIP), None, 1.0)

    async def refused(farm: FarmState, caller: Caller) -> str:
        with pytest.raises(ApiError) as caught:
            await load_reference(file.id, farm, caller)
        return caught.value.code

    async def talk(farm: FarmState) -> None:
        assert await refused(farm, ANYBODY) == "file_not_found"
        await files.create(farm.client, file)
        assert await refused(farm, ANYBODY) == "file_not_found"  # the bytes are gone
        await farm.in_store(farm.objects.put_once, file.key, CLIP, "audio/wav")
        assert (await load_reference(file.id, farm, STRANGER)).sha256 == SHA256
        assert await refused(farm, replace(ANYBODY, project="other")) == "file_not_found"
        farm.settings.limits = Limits(ref_audio_bytes=len(CLIP) - 1)
        assert await refused(farm, ANYBODY) == "ref_audio_too_large"

    bench.run(talk)


def test_a_kept_clip_is_stored_once_for_as_long_as_the_longest_asked(bench: Bench) -> None:
    async def talk(farm: FarmState) -> None:
        clip = await load_reference(TEXT, farm, ANYBODY)
        keys = {await keep_clip(farm, "default", clip, keep_s) for keep_s in (1000, 9000, 10)}
        assert keys == {f"references/default/{SHA256}.wav"}
        (key,) = keys
        stored = b"".join(await farm.in_store(farm.objects.get, key))
        assert (await decode_clip(stored, bench.settings)).sha256 == SHA256
        control, expiry = farm.client.server("control"), farm.client.keys.expiry()
        due = await control.zscore(expiry, key)
        await keep_clip(farm, "default", clip, 5000)
        assert await control.zscore(expiry, key) == due
        await keep_clip(farm, "default", clip, 20_000)
        assert float(await control.zscore(expiry, key)) == pytest.approx(due + 11_000, abs=60)

    bench.run(talk)


class Site:
    """A web server with one clip, which answers conditional requests."""

    def __init__(self) -> None:
        self.etag, self.body, self.answers = '"1"', CLIP, []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        same = bool(self.etag) and f"If-None-Match: {self.etag}\r\n".encode() in head
        self.answers.append(304 if same else 200)
        if same:
            writer.write(b"HTTP/1.1 304 Not Modified\r\nConnection: close\r\n\r\n")
        else:
            tag = f"ETag: {self.etag}\r\n" if self.etag else ""
            writer.write(f"HTTP/1.1 200 OK\r\n{tag}Content-Length: {len(self.body)}\r\n\r\n".encode() + self.body)
        await writer.drain()
        writer.close()
        await writer.wait_closed()


class Visit:
    """Requests for the clip of a `Site` through one cache whose clock the test sets."""

    def __init__(self, clips: RemoteClips, url: str) -> None:
        self.clips, self.url, self.now = clips, url, 0.0

    async def get(self, project: str = "a", path: str = "") -> str:
        return (await self.clips.get(project, self.url + path, "ref_audio")).sha256


def visiting(site: Site, talk: Callable[[Visit], Awaitable[None]]) -> None:
    async def main() -> None:
        async with await asyncio.start_server(site.serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            fetch = Fetch(allowed_ports=(port,), allowed_cidrs=("127.0.0.0/8",))
            visit = Visit(RemoteClips(Settings(fetch=fetch), lambda: visit.now), f"http://127.0.0.1:{port}/")
            await talk(visit)

    asyncio.run(main())


OTHER = wav(1.25, 16_000)


def test_a_url_is_asked_again_after_five_minutes_and_only_for_what_is_new() -> None:
    site = Site()

    async def talk(visit: Visit) -> None:
        for visit.now in (0.0, 299.0, 300.0, 599.0):
            assert await visit.get() == SHA256
        assert site.answers == [200, 304]
        site.etag, site.body = '"2"', OTHER
        visit.now = 600.0
        assert await visit.get() != SHA256
        assert site.answers == [200, 304, 200]

    visiting(site, talk)


def test_a_url_without_validators_is_fetched_anew_after_five_minutes() -> None:
    site = Site()
    site.etag = ""

    async def talk(visit: Visit) -> None:
        for visit.now in (0.0, 299.0, 300.0):
            assert await visit.get() == SHA256
        assert site.answers == [200, 200]

    visiting(site, talk)


def test_projects_do_not_share_what_they_fetched() -> None:
    site = Site()

    async def talk(visit: Visit) -> None:
        await visit.get("a")
        await visit.get("b")
        assert site.answers == [200, 200]

    visiting(site, talk)


def test_the_cache_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site()
    monkeypatch.setattr(remote, "CACHE_BYTES", 250_000)  # two clips of 96 kB

    async def talk(visit: Visit) -> None:
        for path in ("a", "b", "a", "c", "a", "b"):
            await visit.get(path=path)
        assert len(site.answers) == 4

    visiting(site, talk)


def test_what_cannot_be_decoded_is_not_kept() -> None:
    site = Site()
    site.body = b"no sound"

    async def talk(visit: Visit) -> None:
        with pytest.raises(ApiError) as caught:
            await visit.get()
        assert caught.value.code == "ref_audio_invalid"
        site.body = CLIP
        assert await visit.get() == SHA256

    visiting(site, talk)


def test_a_url_of_this_machine_is_forbidden() -> None:
    assert refusal("HTTP://127.0.0.1/clip.wav") == (400, "ref_audio_forbidden")


@given(st.text(max_size=40))
def test_any_text_is_refused_in_order(source: str) -> None:
    assert refusal(source, SETTINGS, STRANGER)[0] in (400, 403)
