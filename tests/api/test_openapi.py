"""The description of the API describes all of it."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from speechmill import api
from speechmill.api import realtime
from speechmill.api.app import create_app
from speechmill.configs.settings import load


@pytest.fixture(scope="module")
def description() -> dict[str, Any]:
    return create_app(load(assignments=["redis.control_url=redis://nowhere", "api.elevenlabs=true"])).openapi()


def operations(description: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, by_method in description["paths"].items():
        yield from ((f"{method} {path}", operation) for method, operation in by_method.items())


def test_every_route_is_named_and_tells_its_errors(description: dict[str, Any]) -> None:
    for name, operation in operations(description):
        assert operation["summary"], name
        assert operation["tags"], name
        assert {"4XX", "5XX"} <= operation["responses"].keys(), name
        assert "422" not in operation["responses"], name


def test_every_parameter_and_field_has_a_description_and_an_example(description: dict[str, Any]) -> None:
    for name, operation in operations(description):
        for parameter in operation.get("parameters", []):
            assert parameter.get("description"), (name, parameter["name"])
            assert parameter.get("examples") or parameter["schema"].get("examples"), (name, parameter["name"])
        for content in operation.get("requestBody", {}).get("content", {}).values():
            _check_fields(name, content["schema"])
    for name, schema in description["components"]["schemas"].items():
        _check_fields(name, schema)


def test_response_headers_have_a_description_and_an_example(description: dict[str, Any]) -> None:
    headers = description["paths"]["/v1/audio/speech"]["post"]["responses"]["200"]["headers"]
    assert {"X-Job-Id", "X-Seed", "X-Sample-Rate", "Server-Timing"} <= headers.keys()
    for name, header in headers.items():
        assert header["description"], name
        assert header["schema"]["examples"], name


def test_every_code_that_is_raised_has_a_meaning(description: dict[str, Any]) -> None:
    sources = [path.read_text() for path in Path(api.__file__).parent.rglob("*.py")]
    raised = {found for source in sources for found in re.findall(r'ApiError\((\d+), "(\w+)"', source)}
    table = description["components"]["schemas"]["Error"]["description"]
    explained = set(re.findall(r"^\| `(\w+)` \| (\d+) \| \S.+ \|$", table, re.MULTILINE))
    assert ("400", "empty_input") in raised
    assert {(code, status) for status, code in raised} <= explained


def test_the_websocket_is_described_with_every_message_and_limit(description: dict[str, Any]) -> None:
    told = description["paths"]["/v1/audio/speech/stream"]["get"]
    assert told["responses"].keys() == {"101", "4XX", "5XX"}
    assert told["security"]
    sources = "".join(path.read_text() for path in Path(realtime.__file__).parent.glob("*.py"))
    messages = set(re.findall(r'"((?:session|input|audio)\.[a-z]+)"', sources))
    assert len(messages) > 10
    assert messages == set(re.findall(r"^\| `([a-z]+\.[a-z]+)` \|", told["description"], re.MULTILINE))
    assert not [option for option in ("stream_audio", "split_granularity", "ack") if option not in told["description"]]


def test_what_opens_no_websocket_is_answered_as_described() -> None:
    app = create_app(load(assignments=["redis.control_url=redis://nowhere"]))

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
            return await client.get("/v1/audio/speech/stream", params={"api_key": "sk-one"})

    answer = asyncio.run(ask())
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")


def _check_fields(name: str, schema: dict[str, Any]) -> None:
    for field, found in schema.get("properties", {}).items():
        assert found.get("description"), (name, field)
        assert "examples" in found or found.get("format") == "binary", (name, field)


def test_bounds_are_told_as_json_schema_has_them(description: dict[str, Any]) -> None:
    speed = description["components"]["schemas"]["SpeechBody"]["properties"]["speed"]["anyOf"][0]
    assert (speed["minimum"], speed["maximum"], speed["type"]) == (0.25, 4.0, "number")
