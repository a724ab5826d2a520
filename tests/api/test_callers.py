"""Who a request is taken for."""

import asyncio
from collections.abc import Iterator

import httpx
import pytest

from speechmill.api.app import create_app
from speechmill.api.callers import auth_enabled
from speechmill.configs.settings import ApiKey, Settings, load
from speechmill.infra.apikeys import create_key, revoke_key
from speechmill.infra.client import Client
from speechmill.infra.embedded import EmbeddedS3, EmbeddedValkey
from speechmill.infra.keys import Keys


@pytest.mark.parametrize(
    ("host", "asked", "on"),
    [
        ("127.0.0.1", "auto", False),
        ("127.0.0.7", "auto", False),
        ("::1", "auto", False),
        ("localhost", "auto", False),
        ("0.0.0.0", "auto", True),
        ("::", "auto", True),
        ("farm.example", "auto", True),
        ("", "auto", True),
        ("127.0.0.1", True, True),
        ("0.0.0.0", False, False),
    ],
)
def test_keys_are_asked_for_unless_only_this_machine_can_reach_us(host: str, asked: object, on: bool) -> None:
    settings = Settings.model_validate({"api": {"host": host}, "auth": {"enabled": asked}})
    assert auth_enabled(settings) == on


@pytest.fixture
def settings(valkey: EmbeddedValkey, s3: EmbeddedS3, prefix: str) -> Settings:
    settings = load().model_copy(deep=True)
    settings.redis.control_url, settings.redis.prefix = valkey.url, prefix
    settings.s3.endpoint_url, settings.s3.bucket = s3.endpoint_url, s3.bucket
    settings.s3.access_key, settings.s3.secret_key = s3.access_key, s3.secret_key
    settings.auth.enabled = True
    return settings


@pytest.fixture
def client(valkey: EmbeddedValkey, prefix: str) -> Iterator[Client]:
    client = Client(valkey.url, valkey.url, Keys(prefix))
    yield client
    client.close()


def _bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}


def ask(settings: Settings, *requests: tuple[str, str, str], body: object = None) -> list[httpx.Response]:
    """(method, path, key) each."""

    async def main() -> list[httpx.Response]:
        app = create_app(settings)
        await app.state.farm.start()
        try:
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as http:
                return [
                    await http.request(method, path, json=body, headers=_bearer(key))
                    for method, path, key in requests
                ]
        finally:
            await app.state.farm.stop()

    return asyncio.run(main())


def test_a_made_key_opens_and_a_revoked_one_does_not(settings: Settings, client: Client) -> None:
    record, key = create_key(client, ApiKey())
    assert [answer.status_code for answer in ask(settings, ("GET", "/v1/files", key))] == [200]
    assert revoke_key(client, record.id)
    (refused,) = ask(settings, ("GET", "/v1/files", key))
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"] == "Bearer"


def test_a_key_reaches_no_further_than_its_scopes(settings: Settings, client: Client) -> None:
    _, key = create_key(client, ApiKey(scopes=("voices:read",)))
    answers = ask(settings, ("GET", "/v1/audio/voices", key), ("GET", "/v1/files", key), ("GET", "/v1/models", key))
    assert [answer.status_code for answer in answers] == [200, 403, 200]


def test_lists_may_be_closed_too(settings: Settings) -> None:
    settings.auth.public_lists = False
    paths = ("/v1/models", "/v1/audio/voices", "/v1/audio/models", "/compat/openwebui/v1/audio/voices", "/health")
    answers = ask(settings, *(("GET", path, "") for path in paths))
    assert [answer.status_code for answer in answers] == [401, 401, 401, 200, 200]


def test_a_key_may_be_for_some_models_only(settings: Settings, client: Client) -> None:
    _, key = create_key(client, ApiKey(models=("another",)))
    (answer,) = ask(settings, ("POST", "/v1/audio/speech", key), body={"input": "Hi"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (403, "model")


@pytest.mark.parametrize(
    ("origin", "status"),
    [("https://evil.example", 403), ("http://localhost:3000", 415), ("http://test", 415), ("null", 403), ("", 415)],
)
def test_without_keys_only_pages_of_this_machine_may_do_things(settings: Settings, origin: str, status: int) -> None:
    settings.auth.enabled = False

    async def main() -> httpx.Response:
        app = create_app(settings)
        await app.state.farm.start()
        try:
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as http:
                headers = {"Origin": origin} if origin else {}
                return await http.post("/v1/audio/voices", content=b"x", headers=headers)
        finally:
            await app.state.farm.stop()

    assert asyncio.run(main()).status_code == status
