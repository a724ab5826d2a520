"""The HTTP API over a whole farm."""

import io
import json
import re
import socket
import subprocess
import time
import wave
from typing import Any

import httpx
import pytest

from speechmill.infra.jobs import TERMINAL

from .harness import Farm, eventually, samples

TEN = " ".join(
    [
        "The birch canoe slid on the smooth planks.",
        "Glue the sheet to the dark blue background.",
        "It is easy to tell the depth of a well.",
        "These days a chicken leg is a rare dish.",
        "Rice is often served in round bowls.",
        "The juice of lemons makes fine punch.",
        "The box was thrown beside the parked truck.",
        "The hogs were fed chopped corn and garbage.",
        "Four hours of steady work faced us.",
        "A large size in stockings is hard to sell.",
    ]
)


def post(farm: Farm, **body: Any) -> httpx.Response:
    return httpx.post(f"{farm.base}/v1/audio/speech", json=body, timeout=60)


def error_of(answer: httpx.Response) -> dict[str, Any]:
    """The error object, which has exactly these keys at least."""
    error: dict[str, Any] = answer.json()["error"]
    assert {"message", "type", "param", "code"} <= error.keys()
    return error


def test_the_curl_line_known_from_vllm_omni_gives_a_wav(served: Farm) -> None:
    body = json.dumps({"input": "Hello there.", "voice": "default", "response_format": "wav"})
    url = f"{served.base}/v1/audio/speech"
    command = ["curl", "-s", "-X", "POST", url, "-H", "Content-Type: application/json", "-d", body]
    made = subprocess.run(command, capture_output=True, check=True).stdout
    with wave.open(io.BytesIO(made)) as sound:
        assert (sound.getframerate(), sound.getnchannels(), sound.getsampwidth()) == (24_000, 1, 2)
        assert sound.getnframes() == (len(made) - 44) // 2
    assert samples(made[44:]).max() > 1000


def test_the_streaming_curl_line_known_from_vllm_omni_gives_raw_pcm(served: Farm) -> None:
    body = {"input": "Hello there.", "voice": "default", "stream": True, "stream_format": "audio"}
    command = ["curl", "-sN", f"{served.base}/v1/audio/speech", "-H", "Content-Type: application/json", "-d"]
    made = subprocess.run([*command, json.dumps({**body, "response_format": "pcm"})], capture_output=True, check=True)
    assert len(made.stdout) % 2 == 0
    assert samples(made.stdout).max() > 1000


def test_a_buffered_answer_carries_the_headers_of_the_specification(served: Farm) -> None:
    answer = post(served, input="Hello there.", seed=5, voice="HEART")
    headers = answer.headers
    assert headers["content-type"] == "audio/wav"
    assert headers["content-disposition"] == 'inline; filename="speech.wav"'
    assert headers["cache-control"] == "no-store"
    assert (headers["x-sample-rate"], headers["x-channels"], headers["x-sample-format"]) == ("24000", "1", "s16le")
    assert (headers["x-model"], headers["x-voice"], headers["x-seed"]) == ("hibari", "heart", "5")
    assert headers["x-request-id"].startswith("req_")
    assert headers["x-job-id"].startswith("job_")
    assert int(headers["content-length"]) == len(answer.content)
    assert int(headers["x-audio-duration-ms"]) == round((len(answer.content) - 44) / 48)
    assert headers["server-timing"].startswith("queue;dur=")
    assert int(headers["x-vllm-omni-total-tokens"]) > int(headers["x-vllm-omni-input-tokens"]) > 0


def test_a_raw_wav_stream_has_one_header_of_unknown_size_and_no_content_length(served: Farm) -> None:
    answer = post(served, input="Hello there.", stream_format="audio")
    assert "content-length" not in answer.headers
    assert answer.headers["x-accel-buffering"] == "no"
    header = answer.content[:44]
    assert header[:8] == b"RIFF\xff\xff\xff\xff"
    assert header[36:] == b"data\xff\xff\xff\xff"
    assert b"RIFF" not in answer.content[44:]


def test_buffered_raw_and_stored_audio_of_one_job_are_the_same_bytes(served: Farm) -> None:
    raw = post(served, input=TEN[:130], seed=3, stream_format="audio", response_format="pcm")
    job = raw.headers["x-job-id"]
    served.await_end([job], 20)
    assert raw.content == served.stored(job) == served.out(job)
    buffered = post(served, input=TEN[:130], seed=3)
    job = buffered.headers["x-job-id"]
    served.await_end([job], 20)
    assert buffered.content[44:] == served.stored(job) == served.out(job)


def test_streaming_is_real_the_first_byte_comes_before_half_of_the_time(served: Farm) -> None:
    body = {"input": TEN, "stream_format": "audio", "response_format": "pcm"}
    with httpx.stream("POST", f"{served.base}/v1/audio/speech", json=body, timeout=60) as answer:
        began, first = time.monotonic(), 0.0
        began -= answer.elapsed.total_seconds() if answer.is_closed else 0
        for _ in answer.iter_raw():
            first = first or time.monotonic()
        total = time.monotonic() - began
    assert first - began < total / 2


def test_the_same_seed_gives_the_same_audio_and_another_seed_does_not(served: Farm) -> None:
    one, again, other = (post(served, input="Hello there.", seed=seed).content for seed in (1, 1, 2))
    assert one == again
    assert one != other


def test_speed_changes_the_length_and_not_the_rate(served: Farm) -> None:
    slow, fast = (post(served, input=TEN[:90], speed=speed, response_format="pcm") for speed in (0.5, 2.0))
    assert 3.0 < len(slow.content) / len(fast.content) < 5.0
    assert slow.headers["x-sample-rate"] == fast.headers["x-sample-rate"] == "24000"


def test_another_sample_rate_has_the_same_duration(served: Farm) -> None:
    native = post(served, input="Hello there.", seed=1, response_format="pcm")
    other = post(served, input="Hello there.", seed=1, response_format="pcm", sample_rate=16_000)
    assert other.headers["x-sample-rate"] == "16000"
    assert abs(len(other.content) / 16_000 - len(native.content) / 24_000) < 0.001


def test_word_timestamps_are_in_order_and_inside_the_audio(served: Farm) -> None:
    answer = post(served, input="The birch canoe. It slid on.", word_timestamps=True)
    words = json.loads(answer.headers["x-word-timestamps"])
    assert [word["word"].strip(".") for word in words] == ["The", "birch", "canoe", "It", "slid", "on"]
    times = [moment for word in words for moment in (word["start_ms"], word["end_ms"])]
    assert times == sorted(times)
    assert times[-1] <= int(answer.headers["x-audio-duration-ms"])


@pytest.mark.parametrize(
    ("body", "status", "code", "param"),
    [
        ({}, 400, "missing_required_parameter", "input"),
        ({"input": "   "}, 400, "empty_input", "input"),
        ({"input": "x" * 16_385}, 400, "input_too_long", "input"),
        ({"input": 5}, 400, "invalid_type", "input"),
        ({"input": "Hi", "voice": "nobody"}, 400, "invalid_voice", "voice"),
        ({"input": "Hi", "voice": {"name": "heart"}}, 400, "invalid_type", "voice"),
        ({"input": "Hi", "model": "nothing"}, 404, "model_not_found", "model"),
        ({"input": "Hi", "response_format": "midi"}, 400, "unsupported_response_format", "response_format"),
        ({"input": "Hi", "sample_rate": 12_345}, 400, "unsupported_sample_rate", "sample_rate"),
        ({"input": "Hi", "speed": 5}, 400, "invalid_value", "speed"),
        ({"input": "Hi", "speed": 4.0}, 400, "invalid_value", "speed"),
        ({"input": "Hi", "speed": "1"}, 400, "invalid_type", "speed"),
        ({"input": "Hi", "stream": 1}, 400, "invalid_type", "stream"),
        ({"input": "Hi", "seed": 1 << 63}, 400, "invalid_type", "seed"),
        ({"input": "Hi", "seed": True}, 400, "invalid_type", "seed"),
        ({"input": "Hi", "instructions": "whisper"}, 400, "unsupported_parameter", "instructions"),
        ({"input": "Hi", "ref_audio": "data:audio/wav;base64,AA=="}, 400, "unsupported_parameter", "ref_audio"),
        ({"input": "Hi", "extra_params": {"temperature": 1}}, 400, "unsupported_parameter", "extra_params"),
        ({"input": "Hi", "ambient_sound": "rain"}, 400, "unsupported_parameter", "ambient_sound"),
        ({"input": "Hi", "voice": "heart", "speaker": "other"}, 400, "mutually_exclusive_parameters", "voice"),
        ({"input": "Hi. " * 200, "split_text": "none"}, 400, "input_too_long", "input"),
        ({"input": "你好。"}, 400, "invalid_value", "input"),
        ({"input": "你好。こんにちは。"}, 400, "invalid_value", "input"),
    ],
)
def test_a_bad_request_names_its_fault(
    served: Farm, body: dict[str, Any], status: int, code: str, param: str | None
) -> None:
    answer = post(served, **body)
    error = error_of(answer)
    assert (answer.status_code, error["code"], error["param"]) == (status, code, param)
    assert answer.headers["x-should-retry"] == "false"


def test_a_sentence_that_cannot_be_spoken_is_passed_over(served: Farm) -> None:
    plain = post(served, input="Hello there. Goodbye.", seed=1, response_format="pcm")
    mixed = post(served, input="Hello there. こんにちは。 Goodbye.", seed=1, response_format="pcm")
    assert mixed.status_code == 200
    assert abs(len(mixed.content) - len(plain.content)) < 0.3 * 48_000


@pytest.mark.parametrize(
    "body",
    [
        {"instructions": "", "language": "Auto", "speed": 1.0, "voice": "", "extra_params": {}},
        {"instructions": None, "language": "", "stream": False, "task_type": None, "seed": None, "voice": None},
        {"voice": {"id": "heart"}, "response_format": "WAV", "speaker": "heart"},
    ],
)
def test_neutral_values_are_accepted(served: Farm, body: dict[str, Any]) -> None:
    assert post(served, input="Hi", **body).status_code == 200


def test_unknown_parameters_are_listed_or_refused_when_asked_to(served: Farm) -> None:
    body = {"input": "Hi", "zeta": 1, "alpha": 2}
    assert post(served, **body).headers["x-ignored-params"] == "alpha, zeta"
    strict = httpx.post(f"{served.base}/v1/audio/speech", json=body, headers={"X-Strict-Params": "true"})
    assert error_of(strict)["code"] == "unknown_parameter"


@pytest.mark.parametrize(
    ("content", "media_type", "status", "code"),
    [
        (b"{", "application/json", 400, "invalid_json"),
        (b"[]", "application/json", 400, "invalid_json"),
        (b'{"input": NaN}', "application/json", 400, "invalid_value"),
        (b'{"input": "a", "input": "b"}', "application/json", 400, "invalid_json"),
        (b'{"input": ' + b"[" * 40 + b"]" * 40 + b"}", "application/json", 400, "invalid_json"),
        (b"\xff\xfe", "application/json", 400, "invalid_json"),
        (b"input=Hi", "application/x-www-form-urlencoded", 415, "unsupported_media_type"),
        (b" " * 16_777_217, "application/json", 413, "request_too_large"),
    ],
)
def test_a_body_that_is_no_request_is_refused(
    served: Farm, content: bytes, media_type: str, status: int, code: str
) -> None:
    url = f"{served.base}/v1/audio/speech"
    answer = httpx.post(url, content=content, headers={"Content-Type": media_type})
    assert (answer.status_code, error_of(answer)["code"]) == (status, code)


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nothing", 404, "not_found"),
        ("POST", "/v1/audio/speech/", 404, "not_found"),
        ("GET", "/v1/audio/speech", 405, "method_not_allowed"),
        ("GET", "/v1/models/nothing%2Fhere", 404, "model_not_found"),
    ],
)
def test_every_failing_route_answers_with_the_error_object(
    served: Farm, method: str, path: str, status: int, code: str
) -> None:
    answer = httpx.request(method, f"{served.base}{path}")
    assert (answer.status_code, error_of(answer)["code"]) == (status, code)
    assert answer.headers["x-request-id"].startswith("req_")


def test_a_request_id_of_the_caller_is_echoed_if_it_is_well_formed(served: Farm) -> None:
    good = httpx.get(f"{served.base}/health", headers={"X-Request-Id": "my-id.1"})
    assert good.headers["x-request-id"] == "my-id.1"
    bad = httpx.get(f"{served.base}/health", headers={"X-Request-Id": "a b"})
    assert bad.headers["x-request-id"].startswith("req_")


def test_models_health_version_and_metrics_answer(served: Farm) -> None:
    models = httpx.get(f"{served.base}/v1/models").json()
    listed = [(m["id"], m["status"], m.get("alias_of")) for m in models["data"]]
    assert listed[0] == ("hibari", "ready", None)
    assert {(name, meant) for name, _, meant in listed[1:]} == {
        (name, "hibari") for name in ("tts-1", "tts-1-hd", "gpt-4o-mini-tts")
    }
    assert httpx.get(f"{served.base}/v1/models/hibari").json()["capabilities"]["native_sample_rate"] == 24_000
    assert httpx.get(f"{served.base}/health").json() == {"status": "ok"}
    assert httpx.get(f"{served.base}/ping").json() == {"status": "ok"}
    ready = httpx.get(f"{served.base}/health/ready").json()
    assert set(ready["models"]["hibari"]) == {"prosody", "decoder", "finish", "store"}
    assert "version" in httpx.get(f"{served.base}/version").json()
    post(served, input="Hi")
    text = httpx.get(f"{served.base}/metrics").text
    assert re.search(r'speech_worker_up\{model="hibari",stage="decoder",worker="[^"]+"\} 1\.0', text)
    for name in ("speech_queue_wait_seconds", "speech_rtf", "speech_ttfa_seconds", "speech_e2e_seconds"):
        assert re.search(rf'{name}_count\{{[^}}]*model="hibari"', text)
    assert 'speech_requests_total{format="wav",mode="buffered",model="hibari"' in text
    assert "Hi" not in text.replace("HELP", "")


def _leased(farm: Farm) -> float:
    lines = httpx.get(f"{farm.base}/metrics").text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("speech_tasks_leased{"))


@pytest.mark.parametrize("mode", [{"stream_format": "audio"}, {}])
def test_a_client_that_disconnects_frees_its_slots_within_a_second(served: Farm, mode: dict[str, Any]) -> None:
    eventually(lambda: _leased(served) == 0, 20, "earlier work is done")
    host, port = served.base.removeprefix("http://").split(":")
    body = json.dumps({"input": f"{TEN} " * 20, "response_format": "pcm", **mode}).encode()
    head = f"POST /v1/audio/speech HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(head.encode() + b"\r\n\r\n" + body)
        eventually(lambda: _leased(served) >= 3, 10, "the stages are at work")
        if mode:
            assert connection.recv(64).startswith(b"HTTP/1.1 200")
    eventually(lambda: _leased(served) == 0, 1.0, "no slot is held any more")
    jobs = [k.decode().rsplit(":", 1)[1] for k in served.client.server("control").keys(served.client.keys.job("*"))]
    newest = max(jobs)
    eventually(lambda: served.record(newest).state in TERMINAL, 2, "the job has ended")
    assert served.record(newest).state == "cancelled"


def test_a_stored_call_goes_on_when_its_client_leaves(served: Farm) -> None:
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{served.base}/v1/audio/speech", json={"input": f"{TEN} " * 3, "store": True}, timeout=0.3)
    jobs = [k.decode().rsplit(":", 1)[1] for k in served.client.server("control").keys(served.client.keys.job("*"))]
    served.await_end([max(jobs)], 30)
    assert served.record(max(jobs)).state == "succeeded"


def test_a_call_that_takes_too_long_is_a_504_and_its_job_expires(served: Farm) -> None:
    answer = post(served, input=f"{TEN} " * 26, timeout_seconds=1)
    error = error_of(answer)
    assert (answer.status_code, error["code"]) == (504, "deadline_exceeded")
    eventually(lambda: served.record(error["job_id"]).state == "expired", 2, "the job has ended")


def test_one_text_that_cannot_be_spoken_does_not_hurt_its_neighbours(served: Farm) -> None:
    import concurrent.futures

    texts = ["Hello there."] * 6 + ["你好。"] + ["Hello there."] * 6
    with concurrent.futures.ThreadPoolExecutor(len(texts)) as pool:
        statuses = list(pool.map(lambda text: post(served, input=text).status_code, texts))
    assert statuses == [200] * 6 + [400] + [200] * 6
