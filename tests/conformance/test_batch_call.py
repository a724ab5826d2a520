"""Several texts in one call (§5.1)."""

import base64
from typing import Any

import httpx

from .test_fields import KEY, PRESET, assert_error, speak

PATH = "/v1/audio/speech/batch"


def speak_all(server: str, items: Any, **defaults: Any) -> httpx.Response:
    return speak(server, {"input": ..., "items": items, **defaults}, PATH)


def test_items_take_the_defaults_and_say_the_rest_themselves(server: str) -> None:
    items = [{"input": "One."}, {"input": "Two.", "response_format": "flac", "seed": 3, "speed": None}]
    answer = speak_all(server, items, response_format="pcm", speed=2.0).json()
    assert [result["media_type"] for result in answer["results"]] == ["audio/pcm", "audio/flac"]
    assert base64.b64decode(answer["results"][1]["audio_data"])[:4] == b"fLaC"
    assert {"input_tokens", "output_tokens", "total_tokens"} <= answer["results"][0]["usage"].keys()
    assert (answer["total"], answer["succeeded"], answer["failed"]) == (2, 2, 0)


def test_a_bad_item_says_so_in_its_place(server: str) -> None:
    items = ["text", {}, {"input": "x", "stream": True}, {"input": "x", "model": "nobody"}, {"input": "Fine."}]
    results = speak_all(server, items).json()["results"]
    told = [(r["error_detail"]["code"], r["error_detail"]["param"]) for r in results[:4]]
    assert told == [
        ("invalid_type", "items[0]"),
        ("missing_required_parameter", "items[1].input"),
        ("unsupported_parameter", "items[2].stream"),
        ("model_not_found", "items[3].model"),
    ]
    assert all(r["audio_data"] is None and r["status"] == "error" for r in results[:4])
    assert results[4]["status"] == "success"


def test_what_is_wrong_with_the_call_is_an_error_of_the_call(server: str) -> None:
    assert_error(speak_all(server, [{"input": "x"}], model="nobody"), 404, "model_not_found", "model")
    assert_error(speak_all(server, [{"input": "x"}], stream=True), 400, "unsupported_parameter", "stream")
    assert_error(speak_all(server, [{"input": "x"}], input="y"), 400, "unsupported_parameter", "input")
    assert_error(speak_all(server, {"input": "x"}), 400, "invalid_type", "items")
    refused = httpx.post(server + PATH, json={"model": PRESET}, headers=KEY)
    assert_error(refused, 400, "missing_required_parameter", "items")


def test_a_batch_of_an_openai_model_is_whole_files_too(server: str) -> None:
    (result,) = speak_all(server, [{"input": "One."}], model="tts-1").json()["results"]
    assert result["media_type"] == "audio/mpeg"
