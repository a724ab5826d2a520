"""Every field of §1.1 at and beyond its bounds, and every error in its one shape."""

import base64
from typing import Any

import httpx
import pytest

PRESET = "Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice"
DESIGN = "Qwen/Qwen3-TTS-12Hz-1.7B-VoiceDesign"
BASE = "Qwen/Qwen3-TTS-12Hz-1.7B-Base"
CLONE = "FunAudioLLM/Fun-CosyVoice3-0.5B-2512"
KEY = {"Authorization": "Bearer sk-test-a"}


def speak(server: str, fields: dict[str, Any], path: str = "/v1/audio/speech", **headers: str) -> httpx.Response:
    body = {"model": PRESET, "input": "Hello.", **fields}
    body = {name: value for name, value in body.items() if value is not ...}
    return httpx.post(server + path, json=body, headers={**KEY, **headers}, timeout=60)


def assert_error(answer: httpx.Response, status: int, code: str, param: str | None) -> None:
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert (error["code"], error["param"]) == (code, param)
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"].startswith("req_")


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"input": 5}, "invalid_type", "input"),
        ({"input": None}, "invalid_type", "input"),
        ({"input": "\x00\x01 \u2003"}, "empty_input", "input"),
        ({"model": ...}, "missing_required_parameter", "model"),
        ({"model": "x" * 257}, "invalid_value", "model"),
        ({"voice": 5}, "invalid_type", "voice"),
        ({"voice": {}}, "invalid_type", "voice"),
        ({"voice": {"id": 5}}, "invalid_type", "voice"),
        ({"voice": "vivian", "speaker": "ryan"}, "mutually_exclusive_parameters", "voice"),
        ({"speaker": "nobody-has-this"}, "invalid_voice", "speaker"),
        ({"instructions": "x" * 501}, "instructions_too_long", "instructions"),
        ({"response_format": "ogg"}, "unsupported_response_format", "response_format"),
        ({"response_format": 1}, "invalid_type", "response_format"),
        ({"sample_rate": 24000.5}, "invalid_type", "sample_rate"),
        ({"sample_rate": True}, "invalid_type", "sample_rate"),
        ({"sample_rate": "24000"}, "invalid_type", "sample_rate"),
        ({"sample_rate": 23000}, "unsupported_sample_rate", "sample_rate"),
        ({"sample_rate": 44100, "response_format": "opus"}, "unsupported_sample_rate", "sample_rate"),
        ({"speed": 0.24}, "invalid_value", "speed"),
        ({"speed": True}, "invalid_type", "speed"),
        ({"stream": "true"}, "invalid_type", "stream"),
        ({"stream": 1}, "invalid_type", "stream"),
        ({"stream_format": "chunks"}, "invalid_value", "stream_format"),
        ({"task_type": "Clone"}, "invalid_value", "task_type"),
        ({"task_type": "VoiceDesign"}, "task_model_mismatch", "task_type"),
        ({"language": "Klingon"}, "invalid_value", "language"),
        ({"language": "x" * 65}, "invalid_value", "language"),
        ({"references": []}, "task_model_mismatch", "task_type"),
        ({"x_vector_only_mode": True}, "unsupported_parameter", "x_vector_only_mode"),
        ({"speaker_embedding": [0.1]}, "unsupported_parameter", "speaker_embedding"),
        ({"speaker_embedding": ["a"]}, "invalid_type", "speaker_embedding"),
        ({"speaker_embedding": []}, "invalid_value", "speaker_embedding"),
        ({"max_new_tokens": 1.5}, "invalid_type", "max_new_tokens"),
        ({"seed": 2**63}, "invalid_type", "seed"),
        ({"seed": 1.5}, "invalid_type", "seed"),
        ({"seed": True}, "invalid_type", "seed"),
        ({"initial_codec_chunk_frames": -1}, "invalid_value", "initial_codec_chunk_frames"),
        ({"extra_params": {"temperature": 0}}, "invalid_value", "extra_params.temperature"),
        ({"extra_params": {"temperature": "hot"}}, "invalid_type", "extra_params.temperature"),
        ({"extra_params": {"top_k": -2}}, "invalid_value", "extra_params.top_k"),
        ({"extra_params": {"top_k": 1.5}}, "invalid_type", "extra_params.top_k"),
        ({"extra_params": {"nope": 1}}, "unsupported_parameter", "extra_params.nope"),
        ({"extra_params": {f"k{i}": 1 for i in range(33)}}, "invalid_value", "extra_params"),
        ({"extra_params": [1]}, "invalid_type", "extra_params"),
        ({"duration_seconds": 5}, "unsupported_parameter", "duration_seconds"),
        ({"duration_seconds": 301}, "invalid_value", "duration_seconds"),
        ({"word_timestamps": True}, "aligner_not_available", "word_timestamps"),
        ({"split_text": "maybe"}, "invalid_value", "split_text"),
        ({"segment_silence_ms": 2001}, "invalid_value", "segment_silence_ms"),
        ({"priority": "urgent"}, "invalid_value", "priority"),
        ({"timeout_seconds": 0.5}, "invalid_value", "timeout_seconds"),
        ({"timeout_seconds": 3601}, "invalid_value", "timeout_seconds"),
        ({"metadata": {"k": 1}}, "invalid_type", "metadata"),
        ({"metadata": {str(i): "v" for i in range(17)}}, "invalid_value", "metadata"),
        ({"metadata": {"k" * 65: "v"}}, "invalid_value", "metadata"),
        ({"ref_audio_2": "x"}, "unsupported_parameter", "ref_audio_2"),
        ({"ambient_sound": "rain"}, "unsupported_parameter", "ambient_sound"),
        ({"model": DESIGN, "instructions": "Calm.", "voice": "vivian"}, "unsupported_parameter", "voice"),
        ({"model": DESIGN, "instructions": "Calm.", "voice": "nobody"}, "invalid_voice", "voice"),
        ({"model": BASE, "references": []}, "invalid_value", "references"),
        ({"model": BASE, "instructions": "Calm."}, "unsupported_parameter", "instructions"),
        ({"model": BASE, "ref_text": "only words"}, "ref_audio_required", "ref_audio"),
        ({"model": BASE, "ref_audio": ["a", "b"]}, "unsupported_parameter", "ref_audio"),
        (
            {"model": CLONE, "ref_audio": "aGVsbG8=", "references": [{"audio_path": "bGVtb24="}], "ref_text": "x"},
            "mutually_exclusive_parameters",
            "references",
        ),
    ],
    ids=repr,
)
def test_a_field_beyond_its_bounds_is_named(server: str, fields: dict[str, Any], code: str, param: str) -> None:
    answer = speak(server, fields)
    assert_error(answer, 400, code, param)
    assert answer.headers["x-should-retry"] == "false"


@pytest.mark.parametrize(
    "fields",
    [
        {"voice": ""},
        {"voice": "default"},
        {"voice": None, "speaker": "VIVIAN"},
        {"instructions": ""},
        {"language": ""},
        {"language": "AUTO"},
        {"language": "en-GB"},
        {"speed": 1},
        {"stream": False, "word_timestamps": False},
        {"extra_params": {}},
        {"extra_params": {"temperature": 2, "top_k": -1, "top_p": 1, "repetition_penalty": 0.5}},
        {"response_format": "WAV"},
        {"metadata": {"k": "v"}},
        {"seed": -(2**63)},
        {"priority": "batch", "timeout_seconds": 60, "segment_silence_ms": 0, "split_text": "none"},
        {"model": "nineninesix/gepard-1.0", "speed": 1.0, "language": "Auto", "instructions": "", "voice": "default"},
    ],
    ids=repr,
)
def test_neutral_and_extreme_values_are_taken(server: str, fields: dict[str, Any]) -> None:
    answer = speak(server, fields)
    assert answer.status_code == 200, answer.text
    assert answer.content[:4] == b"RIFF"


def test_strict_mode_refuses_what_it_does_not_know(server: str) -> None:
    assert_error(speak(server, {"foo": 1}, **{"X-Strict-Params": "true"}), 400, "unknown_parameter", "foo")


def test_a_key_that_comes_twice_is_no_json(server: str) -> None:
    raw = f'{{"model": "{PRESET}", "input": "a", "input": "b"}}'
    headers = {**KEY, "Content-Type": "application/json; charset=utf-8"}
    assert_error(httpx.post(f"{server}/v1/audio/speech", content=raw, headers=headers), 400, "invalid_json", None)


def test_a_reference_may_come_as_a_file_of_a_form(server: str, reference: bytes) -> None:
    fields = f'{{"model": "{CLONE}", "input": "Hello.", "ref_text": "words"}}'
    files = {"request": (None, fields, "application/json"), "ref_audio": ("a.wav", reference, "audio/wav")}
    answer = httpx.post(f"{server}/v1/audio/speech", files=files, headers=KEY, timeout=60)
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-vllm-omni-input-audio-tokens"] != "0"


def test_a_reference_in_the_form_and_in_its_fields_is_one_too_many(server: str, reference: bytes) -> None:
    audio = base64.b64encode(reference).decode()
    fields = f'{{"model": "{CLONE}", "input": "Hello.", "ref_text": "words", "ref_audio": "{audio}"}}'
    files = {"request": (None, fields, "application/json"), "ref_audio": ("a.wav", reference, "audio/wav")}
    answer = httpx.post(f"{server}/v1/audio/speech", files=files, headers=KEY, timeout=60)
    assert_error(answer, 400, "mutually_exclusive_parameters", "ref_audio")


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/audio/speech/", 404, "not_found"),
        ("POST", "/v1/audio/speech/", 404, "not_found"),
        ("GET", "/compat/nobody/v1/models", 404, "not_found"),
        ("PUT", "/v1/audio/speech", 405, "method_not_allowed"),
        ("DELETE", "/health", 405, "method_not_allowed"),
        ("GET", "/v1/audio/jobs/job_none/subtitles", 404, "job_not_found"),
        ("GET", "/v1/text-to-speech/heart", 404, "not_found"),
    ],
)
def test_what_is_not_there_is_an_error_object(server: str, method: str, path: str, status: int, code: str) -> None:
    answer = httpx.request(method, server + path, headers=KEY)
    assert_error(answer, status, code, None)
    assert (status == 405) == ("allow" in answer.headers)
