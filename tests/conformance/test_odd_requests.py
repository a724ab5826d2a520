"""Requests that are strange, and what may not become of them: an error without its shape, or one of the server's."""

import json
import socket
from typing import Any

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from .test_fields import BASE, KEY, PRESET, assert_error, speak

HALF = "\ud800"
"""Of a surrogate pair."""


def escaped(server: str, fields: dict[str, Any]) -> httpx.Response:
    """As a client asks that writes JSON in ASCII, and numbers that are none as Python does."""
    body = json.dumps({"model": PRESET, "input": "Hello.", **fields})
    headers = {**KEY, "Content-Type": "application/json"}
    return httpx.post(f"{server}/v1/audio/speech", content=body, headers=headers, timeout=30)


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"voice": "x" * 257}, "invalid_value", "voice"),
        ({"voice": {"id": "x" * 257}}, "invalid_value", "voice"),
        ({"stream_format": 5}, "invalid_type", "stream_format"),
        ({"task_type": True}, "invalid_type", "task_type"),
        ({"priority": []}, "invalid_type", "priority"),
        ({"voice": f"nobody{HALF}"}, "invalid_voice", "voice"),
        ({"model": "bosonai/higgs-audio-v2-generation-3B-base", "extra_params": {"sc": HALF}}, "unsupported_parameter",
         "extra_params.sc"),
    ],
    ids=repr,
)  # fmt: skip
def test_a_strange_value_is_an_error_of_its_field(server: str, fields: dict[str, Any], code: str, param: str) -> None:
    assert_error(escaped(server, fields), 400, code, param)


@pytest.mark.parametrize(
    "fields",
    [
        {"instructions": HALF},
        {"instructions": "\0calm"},
        {"voice": f"vivian{HALF}"},
        {"metadata": {"a": HALF}},
        {"initial_codec_chunk_frames": 10**6},
        {"model": "bosonai/higgs-audio-v2-generation-3B-base", "extra_params": {"scene": f"a room{HALF}"}},
    ],
    ids=repr,
)
def test_a_strange_value_that_can_be_made_sense_of_is_fine(server: str, fields: dict[str, Any]) -> None:
    answer = escaped(server, fields)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_what_is_no_number_is_a_wrong_value_of_its_field(server: str, number: str) -> None:
    answer = escaped(server, {"model": BASE, "speaker_embedding": [0.5, float(number)]})
    assert_error(answer, 400, "invalid_value", "speaker_embedding")


def test_a_lenient_profile_ignores_every_parameter_that_the_model_does_not_know(server: str) -> None:
    asked = {"extra_params": {"zeta": 1, "temperature": 0.5}, "duration_seconds": 3}
    answer = speak(server, asked, "/compat/openai/v1/audio/speech")
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-ignored-params"] == "duration_seconds, extra_params.zeta"
    assert_error(speak(server, {"extra_params": asked["extra_params"]}), 400, "unsupported_parameter",
                 "extra_params.zeta")  # fmt: skip


@pytest.mark.parametrize(
    ("path", "allowed"),
    [("/v1/audio/voices", "GET, POST"), ("/v1/audio/voices/anna", "DELETE, GET"), ("/v1/audio/speech", "POST")],
)
def test_a_wrong_method_is_told_all_the_right_ones(server: str, path: str, allowed: str) -> None:
    answer = httpx.put(server + path, headers=KEY)
    assert_error(answer, 405, "method_not_allowed", None)
    assert answer.headers["allow"] == allowed


@pytest.mark.parametrize("path", ["/v1/audio/speech/stream/", "/v1/models", "/nowhere"])
def test_a_websocket_where_there_is_none_is_refused_like_any_other_request(server: str, path: str) -> None:
    url = server.replace("http", "ws") + path
    with pytest.raises(InvalidStatus) as caught, connect(url, additional_headers={**KEY, "X-Request-Id": "mine"}):
        pass
    answer = caught.value.response
    assert (answer.status_code, answer.headers["x-request-id"]) == (404, "mine")
    assert answer.body is not None
    assert b'"code":"not_found"' in answer.body


def test_items_of_a_batch_may_name_the_voice_in_their_own_way(server: str) -> None:
    body = {"input": ..., "voice": "vivian", "items": [{"input": "One.", "speaker": "ryan"}]}
    (result,) = speak(server, body, "/v1/audio/speech/batch").json()["results"]
    assert result["status"] == "success", result["error"]


def test_a_batch_tells_what_it_ignores(server: str) -> None:
    body = {"input": None, "items": [{"input": "One."}], "zeta": 1, "alpha": 2}
    answer = speak(server, body, "/v1/audio/speech/batch")
    assert answer.json()["succeeded"] == 1
    assert answer.headers["x-ignored-params"] == "alpha, zeta"
    strict = speak(server, body, "/v1/audio/speech/batch", **{"X-Strict-Params": "true"})
    assert_error(strict, 400, "unknown_parameter", "alpha")


def test_the_request_of_a_form_may_come_as_a_file(server: str) -> None:
    asked = json.dumps({"model": PRESET, "input": "Hello."})
    form = {"request": ("request.json", asked, "application/json")}
    assert httpx.post(f"{server}/v1/audio/speech", files=form, headers=KEY, timeout=30).status_code == 200
    form["request"] = ("request.json", " " * (1 << 20) + asked, "application/json")
    assert_error(httpx.post(f"{server}/v1/audio/speech", files=form, headers=KEY), 413, "file_too_large", "request")


def test_a_batch_tells_what_is_left_and_is_refused_when_nothing_is(server: str) -> None:
    slow = {"Authorization": "Bearer sk-test-slow"}
    body = {"input": ..., "items": [{"input": "One."}, {"input": "Two."}]}
    answers = [speak(server, body, "/v1/audio/speech/batch", **slow) for _ in range(2)]
    assert all(answer.headers["x-ratelimit-limit-requests"] == "2" for answer in answers)
    # another test may have used some of this minute
    assert_error(answers[-1], 429, "rate_limit_exceeded", None)
    assert answers[-1].headers["x-should-retry"] == "true"


@pytest.mark.parametrize("pieces", [1, 2])
def test_a_head_is_refused_above_its_bound_in_whatever_pieces_it_comes(server: str, pieces: int) -> None:
    host, port = server.removeprefix("http://").split(":")
    start, rest = b"GET /health HTTP/1.1\r\nHost: x\r\n", b"A: b\r\n" * 6000 + b"\r\n"
    with socket.create_connection((host, int(port)), timeout=10) as client:
        for piece in (start + rest,) if pieces == 1 else (start, rest):
            client.sendall(piece)
        assert client.recv(1000).startswith(b"HTTP/1.1 413 ")
