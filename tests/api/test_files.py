"""Files over HTTP on the real servers, and multipart bodies that are meant to hurt."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import httpx
import pytest
from fastapi import FastAPI
from hypothesis import given
from hypothesis import strategies as st

from speechmill.api import errors
from speechmill.api import files as files_api
from speechmill.api.errors import ApiError
from speechmill.api.farm import FarmState
from speechmill.api.http import multipart
from speechmill.api.http.ranges import parse_range
from speechmill.configs.settings import ApiKey, Auth, Settings
from speechmill.infra import files
from speechmill.infra.client import Client
from speechmill.infra.embedded import EmbeddedS3, EmbeddedValkey
from speechmill.infra.expiry import sweep_objects
from speechmill.infra.keys import Keys

LINES = b'{"custom_id":"1"}\n' * 100
KEYS = (
    ApiKey(key="sk-a", project="a"),
    ApiKey(key="sk-b", project="b"),
    ApiKey(key="sk-speech", project="a", scopes=("speech",)),
)
BOUNDARY = b"--cut\r\n"
HEADERS = {"content-type": "multipart/form-data; boundary=cut"}


class Office:
    """The routes of files in an app of their own."""

    def __init__(self, valkey: EmbeddedValkey, s3: EmbeddedS3, bucket: str, prefix: str) -> None:
        settings = Settings(auth=Auth(enabled=True, keys=KEYS))
        settings.redis.control_url, settings.redis.prefix = valkey.url, prefix
        settings.s3.endpoint_url, settings.s3.bucket = s3.endpoint_url, bucket
        settings.s3.access_key, settings.s3.secret_key = s3.access_key, s3.secret_key
        self.client = Client(valkey.url, valkey.url, Keys(prefix))
        self.farm = FarmState(settings)
        self.app = FastAPI()
        self.app.state.farm = self.farm
        errors.install(self.app)
        self.app.include_router(files_api.router)

    def run(self, talk: Callable[[httpx.AsyncClient], Awaitable[None]]) -> None:
        async def main() -> None:
            await self.farm.start()
            transport = httpx.ASGITransport(self.app)
            try:
                async with httpx.AsyncClient(transport=transport, base_url="http://test/v1", headers=key("a")) as http:
                    await talk(http)
            finally:
                await self.farm.stop()
                self.client.close()

        asyncio.run(main())


@pytest.fixture
def office(valkey: EmbeddedValkey, s3: EmbeddedS3, bucket: str, prefix: str) -> Office:
    return Office(valkey, s3, bucket, prefix)


def key(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer sk-{name}"}


async def put(http: httpx.AsyncClient, content: bytes = LINES, name: str = "in.jsonl", **fields: str) -> httpx.Response:
    data = {"purpose": "batch", **fields}
    return await http.post("/files", files={"file": (name, content)}, data=data)


def fault(answer: httpx.Response) -> tuple[int, str, str | None]:
    error = answer.json()["error"]
    return answer.status_code, error["code"], error["param"]


def test_a_file_is_uploaded_shown_listed_read_and_deleted(office: Office) -> None:
    async def talk(http: httpx.AsyncClient) -> None:
        answer = await put(http)
        made = answer.json()
        assert answer.status_code == 200
        assert files.is_file_id(made["id"])
        assert made == {
            "id": made["id"],
            "object": "file",
            "bytes": len(LINES),
            "created_at": made["created_at"],
            "expires_at": made["created_at"] + 30 * 86_400,
            "filename": "in.jsonl",
            "purpose": "batch",
            "status": "processed",
        }
        assert (await http.get(f"/files/{made['id']}")).json() == made
        assert (await http.get("/files")).json()["data"] == [made]
        whole = await http.get(f"/files/{made['id']}/content")
        assert whole.content == LINES
        assert whole.headers["x-content-type-options"] == "nosniff"
        gone = await http.delete(f"/files/{made['id']}")
        assert gone.json() == {"id": made["id"], "object": "file", "deleted": True}
        for path in (f"/files/{made['id']}", f"/files/{made['id']}/content"):
            assert fault(await http.get(path)) == (404, "file_not_found", None)
        assert fault(await http.delete(f"/files/{made['id']}")) == (404, "file_not_found", None)
        assert (await http.get("/files")).json()["data"] == []

    office.run(talk)


def test_only_its_own_project_sees_a_file(office: Office) -> None:
    async def talk(http: httpx.AsyncClient) -> None:
        path = f"/files/{(await put(http)).json()['id']}"
        for answer in (
            await http.get(path, headers=key("b")),
            await http.get(f"{path}/content", headers=key("b")),
            await http.delete(path, headers=key("b")),
        ):
            assert fault(answer) == (404, "file_not_found", None)
        assert (await http.get("/files", headers=key("b"))).json()["data"] == []
        assert fault(await http.get(path, headers=key("speech")))[:2] == (403, "permission_denied")
        assert (await http.get(path)).status_code == 200

    office.run(talk)


def test_the_bytes_of_a_file_go_when_it_is_deleted_or_was_never_finished(office: Office) -> None:
    async def talk(http: httpx.AsyncClient) -> None:
        kept, dropped = [(await put(http, purpose="user_data")).json()["id"] for _ in range(2)]
        control, expiry = office.client.server("control"), office.client.keys.expiry()
        assert control.zrange(expiry, 0, -1) == []  # neither is ever to go
        await http.delete(f"/files/{dropped}")
        left = files.new_file("a", "x", "batch", len(LINES), None, 1.0)
        await files.register_upload(office.farm.client, left)
        assert sweep_objects(office.client, office.farm.objects) == 1
        assert [found.key for found in office.farm.objects.list_prefix("files/")] == [f"files/a/{kept}"]
        assert control.zscore(expiry, left.key) is not None

    office.run(talk)


def test_files_expire_when_they_should(office: Office) -> None:
    async def talk(http: httpx.AsyncClient) -> None:
        chosen = {"expires_after[anchor]": "created_at", "expires_after[seconds]": "3600"}
        for fields, after in (({}, 30 * 86_400), ({"purpose": "user_data"}, None), (chosen, 3600)):
            made = (await put(http, **fields)).json()
            record = office.client.keys.file(made["id"])
            due = office.client.server("control").zscore(office.client.keys.expiry(), f"files/a/{made['id']}")
            assert made["expires_at"] == (after and made["created_at"] + after)
            assert due == made["expires_at"]
            assert office.client.server("control").expiretime(record) == (made["expires_at"] or -1)

    office.run(talk)


def test_an_expired_file_leaves_the_list(office: Office) -> None:
    async def talk(http: httpx.AsyncClient) -> None:
        ids = [(await put(http)).json()["id"] for _ in range(2)]
        control, keys = office.client.server("control"), office.client.keys
        control.delete(keys.file(ids[0]))
        assert [file["id"] for file in (await http.get("/files")).json()["data"]] == [ids[1]]
        assert control.zcard(keys.files("a")) == 1

    office.run(talk)


FIELDS: list[tuple[dict[str, str], str, str]] = [
    ({"purpose": ""}, "missing_required_parameter", "purpose"),
    ({"purpose": "fine-tune"}, "invalid_value", "purpose"),
    ({"expires_after[seconds]": "3600"}, "missing_required_parameter", "expires_after.anchor"),
    ({"expires_after[anchor]": "created_at"}, "missing_required_parameter", "expires_after.seconds"),
    ({"expires_after[anchor]": "x", "expires_after[seconds]": "3600"}, "invalid_value", "expires_after.anchor"),
    *(
        ({"expires_after[anchor]": "created_at", "expires_after[seconds]": text}, code, "expires_after.seconds")
        for text, code in (
            ("3599", "invalid_value"),
            ("2592001", "invalid_value"),
            ("1e4", "invalid_type"),
            ("٣٦٠٠", "invalid_type"),
            ("-3600", "invalid_type"),
        )
    ),
]


def test_a_wrong_field_is_named(office: Office) -> None:
    async def talk(http: httpx.AsyncClient) -> None:
        for fields, code, param in FIELDS:
            assert fault(await put(http, **fields)) == (400, code, param)

    office.run(talk)


def test_the_file_must_be_a_file_and_the_purpose_a_text(office: Office) -> None:
    async def talk(http: httpx.AsyncClient) -> None:
        none = await http.post("/files", files={"purpose": (None, b"batch")})
        assert fault(none) == (400, "missing_required_parameter", "file")
        text = await http.post("/files", files={"file": (None, b"abc"), "purpose": (None, b"batch")})
        assert fault(text) == (400, "invalid_type", "file")
        turned = await http.post("/files", files={"purpose": ("name", b"batch")})
        assert fault(turned) == (400, "invalid_type", "purpose")
        two = await http.post("/files", files=[("file", ("a", b"a")), ("file", ("b", b"b"))])
        assert fault(two)[:2] == (400, "invalid_value")

    office.run(talk)


def test_a_file_beyond_the_limit_of_its_purpose_is_too_large(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_api, "MAX_BYTES", {"batch": 1000, "user_data": 2000})

    async def talk(http: httpx.AsyncClient) -> None:
        assert (await put(http, b"a" * 1000)).status_code == 200
        assert fault(await put(http, b"a" * 1001)) == (413, "file_too_large", "file")
        assert (await put(http, b"a" * 2000, purpose="user_data")).status_code == 200
        assert fault(await put(http, b"a" * 2001, purpose="user_data"))[:2] == (413, "file_too_large")
        assert fault(await put(http, b"a" * (2 << 20)))[:2] == (413, "file_too_large")

    office.run(talk)


NAMES = {
    "../../etc/passwd": "passwd",
    "C:\\clips\\a.wav": "a.wav",
    "日本語 clip.wav": "日本語 clip.wav",
    "a" * 300: "a" * 255,
    "/": "file",
}


def test_a_name_is_shown_and_never_used(office: Office) -> None:
    async def talk(http: httpx.AsyncClient) -> None:
        keys = set()
        for given_, shown in NAMES.items():
            made = (await put(http, name=given_)).json()
            keys.add(f"files/a/{made['id']}")
            assert made["filename"] == shown
            answer = await http.get(f"/files/{made['id']}/content")
            assert answer.headers["content-disposition"].isascii()
        assert {found.key for found in office.farm.objects.list_prefix("")} == keys

    office.run(talk)


def test_lists_are_paged_in_both_orders(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_PAGE", 2)

    async def talk(http: httpx.AsyncClient) -> None:
        made = []
        for number in range(5):
            purpose = "user_data" if number == 1 else "batch"
            record = files.new_file("a", str(number), purpose, 1, None, 1000.0 + number)
            await files.create(office.farm.client, record)
            made.append(record.id)

        async def ids(**query: str | int) -> tuple[list[str], bool]:
            page = (await http.get("/files", params=query)).json()
            found = [file["id"] for file in page["data"]]
            assert (page["first_id"], page["last_id"]) == ((found[0], found[-1]) if found else (None, None))
            return found, page["has_more"]

        assert await ids() == (made[::-1], False)
        assert await ids(order="asc") == (made, False)
        assert await ids(order="asc", limit=3) == (made[:3], True)
        assert await ids(order="asc", limit=2, after=made[2]) == (made[3:], False)
        assert await ids(limit=2, after=made[3]) == ([made[2], made[1]], True)
        assert await ids(purpose="batch", order="asc", limit=2) == ([made[0], made[2]], True)
        assert await ids(purpose="assistants") == ([], False)
        assert await ids(after=made[0]) == ([], False)

    office.run(talk)


def test_a_wrong_query_is_named(office: Office) -> None:
    async def talk(http: httpx.AsyncClient) -> None:
        for query, code in (
            ({"limit": "0"}, "invalid_value"),
            ({"limit": "10001"}, "invalid_value"),
            ({"limit": "x"}, "invalid_value"),
            ({"order": "up"}, "invalid_value"),
            ({"after": "file-x"}, "invalid_cursor"),
        ):
            assert fault(await http.get("/files", params=query)) == (400, code, next(iter(query)))

    office.run(talk)


def test_content_is_sent_whole_or_in_one_range(office: Office) -> None:
    body = bytes(range(256)) * 10_000  # more than one piece

    async def talk(http: httpx.AsyncClient) -> None:
        path = f"/files/{(await put(http, body)).json()['id']}/content"

        async def get(asked: str) -> httpx.Response:
            return await http.get(path, headers={"Range": asked})

        whole = await http.get(path)
        assert (whole.status_code, whole.content) == (200, body)
        assert (whole.headers["accept-ranges"], whole.headers["content-length"]) == ("bytes", str(len(body)))
        for asked, start, end in (
            ("bytes=0-0", 0, 1),
            ("bytes=1000000-1100000", 1_000_000, 1_100_001),
            ("bytes=2559990-9999999", 2_559_990, len(body)),
            ("bytes=2559990-", 2_559_990, len(body)),
            ("bytes=-5", len(body) - 5, len(body)),
            ("Bytes=0-0", 0, 1),
            ("bytes=-99999999", 0, len(body)),
        ):
            part = await get(asked)
            assert (part.status_code, part.content) == (206, body[start:end])
            assert part.headers["content-range"] == f"bytes {start}-{end - 1}/{len(body)}"
        for asked in (f"bytes={len(body)}-", "bytes=-0"):
            none = await get(asked)
            assert fault(none) == (416, "range_not_satisfiable", None)
            assert none.headers["content-range"] == f"bytes */{len(body)}"
        for asked in ("bytes=0-1,3-4", "bytes=5-1", "bytes=-", "bytes=a-b", "lines=0-1", "bytes=0-" + "9" * 50_000):
            assert (await get(asked)).status_code == 200
        changed = await http.get(path, headers={"Range": "bytes=0-0", "If-Range": '"another"'})
        assert (changed.status_code, changed.content) == (200, body)

    office.run(talk)


def test_an_empty_file_is_a_file(office: Office) -> None:
    async def talk(http: httpx.AsyncClient) -> None:
        made = (await put(http, b"")).json()
        content = await http.get(f"/files/{made['id']}/content")
        assert (made["bytes"], content.status_code, content.content) == (0, 200, b"")

    office.run(talk)


@given(st.text("bytes=-,0123456789 ", max_size=20) | st.text(max_size=20), st.integers(0, 100))
def test_a_range_is_within_the_content_or_no_range(header: str, size: int) -> None:
    try:
        asked = parse_range(header, size)
    except ApiError as error:
        assert error.status == 416  # noqa: PT017  both ways are right
    else:
        assert asked is None or 0 <= asked[0] < asked[1] <= size


def field(name: str, value: bytes) -> bytes:
    return BOUNDARY + f'Content-Disposition: form-data; name="{name}"\r\n\r\n'.encode() + value + b"\r\n"


FILE = BOUNDARY + b'Content-Disposition: form-data; name="file"; filename="a"\r\n\r\n' + b"a" * 100 + b"\r\n"
END = b"--cut--\r\n"


BROKEN = [
    b"",
    b"nonsense",
    FILE,
    FILE[:-60],
    field("purpose", b"batch") + FILE,
    BOUNDARY + b"Content-Disposition: form-data\r\n\r\nx\r\n" + END,
    BOUNDARY + b"X" * 100_000 + END,
    b"".join(field(str(number), b"x") for number in range(100)) + END,
    field("purpose", b"a" * (multipart.FIELD_BYTES + 1)) + END,
    FILE * 2 + END,
]


def test_a_broken_body_is_refused(office: Office) -> None:
    async def talk(http: httpx.AsyncClient) -> None:
        for body in BROKEN:
            assert fault(await http.post("/files", content=body, headers=HEADERS)) == (400, "invalid_value", None)

    office.run(talk)


def test_a_part_that_comes_twice_is_refused(office: Office) -> None:
    async def talk(http: httpx.AsyncClient) -> None:
        body = field("purpose", b"batch") * 2 + FILE + END
        assert fault(await http.post("/files", content=body, headers=HEADERS)) == (400, "invalid_value", "purpose")

    office.run(talk)


def test_only_multipart_bodies_are_taken(office: Office) -> None:
    async def talk(http: httpx.AsyncClient) -> None:
        for kind in ("application/json", "application/x-www-form-urlencoded", "text/plain", ""):
            answer = await http.post("/files", content=b"{}", headers={"content-type": kind})
            assert fault(answer)[:2] == (415, "unsupported_media_type")

    office.run(talk)


def test_a_boundary_must_be_named_and_a_charset_does_not_matter(office: Office) -> None:
    async def talk(http: httpx.AsyncClient) -> None:
        bare = await http.post("/files", content=END, headers={"content-type": "multipart/form-data"})
        assert fault(bare)[:2] == (400, "invalid_value")
        kind = HEADERS["content-type"] + "; charset=unicode_escape"
        body = field("purpose", b"batch") + FILE.replace(b'"a"', '"ü\\x"'.encode()) + END
        assert (await http.post("/files", content=body, headers={"content-type": kind})).status_code == 200

    office.run(talk)


def test_a_body_without_a_length_is_counted_while_it_comes(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_api, "MAX_BYTES", {"batch": 1000, "user_data": 1000})
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        yield FILE[:-2]
        while True:
            sent += 1 << 16
            yield b"a" * (1 << 16)

    async def talk(http: httpx.AsyncClient) -> None:
        answer = await http.post("/files", content=endless(), headers=HEADERS)
        assert fault(answer)[:2] == (413, "file_too_large")
        assert answer.headers["connection"] == "close"
        assert sent < 2 << 20

    office.run(talk)


def test_a_body_that_does_not_come_is_not_waited_for(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multipart, "READ_S", 0.05)

    async def stuck() -> AsyncIterator[bytes]:
        yield FILE[:-2]
        await asyncio.Event().wait()

    async def talk(http: httpx.AsyncClient) -> None:
        answer = await http.post("/files", content=stuck(), headers=HEADERS)
        assert fault(answer) == (408, "request_timeout", None)
        assert answer.headers["connection"] == "close"

    office.run(talk)


def test_a_large_body_has_more_time(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multipart, "READ_S", 0.0)
    monkeypatch.setattr(multipart, "PER_MIB_S", 3600.0)

    async def talk(http: httpx.AsyncClient) -> None:
        body = field("purpose", b"batch") + FILE.replace(b"a" * 100, b"a" * 100_000) + END
        assert (await http.post("/files", content=body, headers=HEADERS)).status_code == 200

    office.run(talk)
