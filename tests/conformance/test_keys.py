"""Who may call, how often, and from which pages."""

import httpx
import pytest

from .test_fields import KEY, PRESET, assert_error, speak


@pytest.mark.parametrize(
    "headers",
    [{"X-API-Key": "sk-test-a"}, {"xi-api-key": "sk-test-a"}, {"Authorization": "bearer sk-test-a"}],
    ids=lambda headers: next(iter(headers)),
)
def test_a_key_comes_in_any_of_the_usual_headers(server: str, headers: dict[str, str]) -> None:
    assert httpx.get(f"{server}/v1/files", headers=headers).status_code == 200


def test_lists_are_public_and_the_rest_is_not(server: str) -> None:
    assert httpx.get(f"{server}/v1/models").status_code == 200
    assert httpx.get(f"{server}/v1/audio/models").json()["models"][0].keys() == {"id", "name"}
    assert httpx.get(f"{server}/v1/audio/voices").status_code == 200
    assert_error(httpx.get(f"{server}/v1/files"), 401, "missing_api_key", None)
    wrong = httpx.get(f"{server}/v1/models", headers={"Authorization": "Bearer sk-wrong"})
    assert_error(wrong, 401, "invalid_api_key", None)


def test_a_rate_is_told_and_kept(server: str) -> None:
    slow = {"Authorization": "Bearer sk-test-slow"}
    refused = speak(server, {"speed": 9}, **slow)
    assert (refused.status_code, refused.headers["x-ratelimit-limit-requests"]) == (400, "2")
    answers = [speak(server, {}, **slow) for _ in range(3)]
    # another test may have used some of this minute
    assert answers[-1].status_code == 429
    assert_error(answers[-1], 429, "rate_limit_exceeded", None)
    told = answers[-1].headers
    assert told["x-ratelimit-limit-requests"] == "2"
    assert told["x-ratelimit-remaining-requests"] == "0"
    assert told["x-ratelimit-reset-requests"].endswith("s")
    assert told["x-should-retry"] == "true"
    assert 1 <= int(told["retry-after"]) <= 60
    assert 0 < int(told["retry-after-ms"]) <= 60_000


def test_voices_of_another_project_are_not_there(server: str, reference: bytes) -> None:
    form = {"name": "secret-voice", "consent": "yes"}
    files = {"audio_sample": ("a.wav", reference, "audio/wav")}
    made = httpx.post(f"{server}/v1/audio/voices", data=form, files=files, headers=KEY, timeout=30)
    assert made.status_code == 200, made.text
    other = {"Authorization": "Bearer sk-test-b"}
    listed = httpx.get(f"{server}/v1/audio/voices", headers=other).json()
    assert "secret-voice" not in listed["voices"]
    there = httpx.get(f"{server}/v1/audio/voices/{made.json()['id']}", headers=other)
    assert (there.status_code, there.json()["error"]["code"]) == (404, "voice_not_found")
    assert httpx.delete(f"{server}/v1/audio/voices/secret-voice", headers=KEY).status_code == 200


def test_any_page_may_call_where_keys_are_asked_for(server: str) -> None:
    asked = {
        "Origin": "https://page.example",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization, x-stainless-os",
    }
    allowed = httpx.options(f"{server}/v1/audio/speech", headers=asked)
    assert allowed.status_code == 204
    assert allowed.headers["access-control-allow-origin"] == "*"
    assert "x-stainless-os" in allowed.headers["access-control-allow-headers"]
    assert allowed.headers["access-control-max-age"] == "600"
    assert "access-control-allow-credentials" not in allowed.headers
    for answer in (
        speak(server, {}, Origin="https://page.example"),
        speak(server, {"speed": 9}, Origin="https://page.example"),
        httpx.get(f"{server}/nowhere", headers={"Origin": "https://page.example"}),
    ):
        assert answer.headers["access-control-allow-origin"] == "*"
        assert "X-Seed" in answer.headers["access-control-expose-headers"]


def test_a_request_id_is_kept_if_it_is_well_formed(server: str) -> None:
    assert speak(server, {}, **{"X-Request-Id": "my.id-1"}).headers["x-request-id"] == "my.id-1"
    assert speak(server, {}, **{"X-Request-Id": "not mine!"}).headers["x-request-id"].startswith("req_")


def test_aliases_are_listed_with_what_they_stand_for(server: str) -> None:
    listed = {model["id"]: model for model in httpx.get(f"{server}/v1/models").json()["data"]}
    assert listed["tts-1"]["alias_of"] == PRESET
    assert httpx.get(f"{server}/v1/models/tts-1").json()["alias_of"] == PRESET
