"""The handshake of the WebSocket, by an app in this process. No worker runs."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Subprotocol

from speechmill.api.app import create_app
from speechmill.api.realtime.routes import ROUTE
from speechmill.api.realtime.session import Session
from speechmill.configs.settings import ApiKey, KeyLimits, Settings, load
from speechmill.infra.connect import make_client
from speechmill.infra.embedded import EmbeddedS3, EmbeddedValkey
from speechmill.infra.protocol import beat

from .test_websocket_connection import serving

LONG = 20.0
Talk = Callable[[str], Awaitable[None]]


@pytest.fixture
def settings(valkey: EmbeddedValkey, s3: EmbeddedS3, prefix: str) -> Settings:
    settings = load().model_copy(deep=True)
    settings.redis.control_url, settings.redis.prefix = valkey.url, prefix
    settings.s3.endpoint_url, settings.s3.bucket = s3.endpoint_url, s3.bucket
    settings.s3.access_key, settings.s3.secret_key = s3.access_key, s3.secret_key
    settings.auth.enabled = True
    settings.auth.keys = (ApiKey(key="sk-good"), ApiKey(key="sk-poor", scopes=("voices:read",)))
    return settings


def run(settings: Settings, talk: Talk) -> None:
    async def main() -> None:
        app = create_app(settings)
        await app.state.farm.start()
        try:
            async with serving(app) as (port, _):
                await asyncio.wait_for(talk(f"ws://127.0.0.1:{port}{ROUTE}"), LONG)
        finally:
            await app.state.farm.stop()

    asyncio.run(main())


def with_key(key: str) -> dict[str, Any]:
    return {"additional_headers": {"Authorization": f"Bearer {key}"}}


async def refused(url: str, **how: Any) -> tuple[int, str]:
    """Status and code of the answer to a handshake, which is an answer like any other."""
    with pytest.raises(InvalidStatus) as refusal:
        await connect(url, **how)
    response = refusal.value.response
    assert response.headers["X-Request-Id"].startswith("req_")
    error = json.loads(response.body or b"")["error"]
    assert {"message", "type", "param", "code"} <= error.keys()
    return response.status_code, error["code"]


async def answers(client: ClientConnection) -> bool:
    await client.send('{"type": "nonsense"}')
    return json.loads(await client.recv())["message"] == "Expected session.config, got: nonsense"


@pytest.mark.parametrize(
    ("query", "how"),
    [
        ("", with_key("sk-good")),
        ("?api_key=sk-good", {}),
        ("", {"subprotocols": [Subprotocol("realtime"), Subprotocol("openai-insecure-api-key.sk-good")]}),
        ("", {"subprotocols": [Subprotocol("openai-insecure-api-key.sk-good")]}),
    ],
)
def test_a_key_is_taken_from_wherever_a_client_can_put_it(settings: Settings, query: str, how: dict[str, Any]) -> None:
    async def talk(url: str) -> None:
        async with connect(url + query, **how) as client:
            assert client.subprotocol == ("realtime" if len(how.get("subprotocols", ())) > 1 else None)
            assert client.response is not None
            assert client.response.headers["X-Request-Id"].startswith("req_")
            assert await answers(client)

    run(settings, talk)


def test_who_may_not_speak_is_refused_at_the_handshake(settings: Settings) -> None:
    async def talk(url: str) -> None:
        assert await refused(url) == (401, "missing_api_key")
        assert await refused(url, **with_key("sk-bad")) == (401, "invalid_api_key")
        assert await refused(f"{url}?api_key=sk-bad") == (401, "invalid_api_key")
        assert await refused(url, **with_key("sk-poor")) == (403, "permission_denied")

    run(settings, talk)


def test_a_key_has_so_many_sockets_and_gets_one_back_when_it_closes_one(settings: Settings) -> None:
    async def talk(url: str) -> None:
        settings.limits.ws_per_key = 1
        async with connect(url, **with_key("sk-good")) as client:
            assert await refused(url, **with_key("sk-good")) == (429, "concurrency_limit_exceeded")
            assert await answers(client)
            await client.wait_closed()
        async with connect(url, **with_key("sk-good")) as client:
            assert await answers(client)

    run(settings, talk)


def test_a_mistake_in_a_config_names_its_field(settings: Settings) -> None:
    async def talk(url: str) -> None:
        for field, value, code in (
            ("voice", "nobody", "invalid_voice"),
            ("speed", 9, "invalid_value"),
            ("model", "nothing", "model_not_found"),
            ("response_format", "midi", "unsupported_response_format"),
            ("seed", True, "invalid_type"),
            ("stream_audio", "yes", "invalid_type"),
        ):
            async with connect(url, **with_key("sk-good")) as client:
                await client.send(json.dumps({"type": "session.config", field: value}))
                error = json.loads(await client.recv())
                assert (error["type"], error["code"], error["param"]) == ("error", code, field)
                await client.wait_closed()
                assert client.close_code == 1008

    run(settings, talk)


def test_a_unit_that_nobody_can_speak_now_is_refused_alone(settings: Settings) -> None:
    async def talk(url: str) -> None:
        async with connect(url, **with_key("sk-good")) as client:
            for message in (
                {"type": "session.config", "ack": True},
                {"type": "input.text", "text": "Hello."},
                {"type": "input.done"},
            ):
                await client.send(json.dumps(message))
            configured, start, error, done, end = [json.loads(await client.recv()) for _ in range(5)]
            assert (configured["model"], configured["format"], configured["sample_rate"]) == ("hibari", "wav", 24_000)
            assert (start["type"], error["code"], done["error"]) == ("audio.start", "no_workers", True)
            assert end["total_sentences"] == 1
            await client.send('{"type": "session.close"}')
            await client.wait_closed()
            assert client.close_code == 1000

    run(settings, talk)


def test_an_open_text_is_charged_as_it_comes(settings: Settings) -> None:
    model = "Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice"
    pools = [(f"{model}/talker", 4), (f"{model}/codec", 4), ("farm/finish", 4), ("farm/store", 4)]
    settings.models, settings.test.stand_in = (model,), True
    settings.auth.keys = (ApiKey(key="sk-small", limits=KeyLimits(characters_per_minute=20)),)

    async def talk(url: str) -> None:
        redis = make_client(settings)
        redis.run(beat("w", "{}", 60_000, pools))
        async with connect(url, **with_key("sk-small")) as client:
            config = {"stream_audio": True, "response_format": "pcm", "incremental": True}
            await client.send(json.dumps({"type": "session.config", **config}))
            await client.send(json.dumps({"type": "input.text", "text": "Hello there"}))
            while not redis.server("control").keys(f"{redis.keys.root}:log:*/text"):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            await client.send(json.dumps({"type": "input.text", "text": " and so on"}))
            start, error, done = [json.loads(await client.recv()) for _ in range(3)]
            assert start["sentence_text"] == "Hello there and so on"
            assert (error["code"], error["sentence_index"], done["error"]) == ("rate_limit_exceeded", 0, True)
            await client.send('{"type": "input.done"}')
            assert json.loads(await client.recv())["total_sentences"] == 1
        redis.close()

    run(settings, talk)


def test_what_nobody_foresaw_closes_the_socket_and_is_logged_without_its_words(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(_: Session) -> int:
        raise ValueError("private words")

    async def talk(url: str) -> None:
        async with connect(url, **with_key("sk-good")) as client:
            await client.wait_closed()
            assert client.close_code == 1011

    monkeypatch.setattr(Session, "run", fail)
    run(settings, talk)
    assert "request failed" in caplog.text
    assert "private words" not in caplog.text
