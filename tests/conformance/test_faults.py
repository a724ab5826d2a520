"""What a client sees of a failure, in each way of listening."""

import base64
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from .test_fields import KEY, PRESET, assert_error, speak

TEXT = "Hello there, my good friend. " * 3


@pytest.mark.parametrize("mode", [{}, {"stream_format": "audio"}, {"stream": True}], ids=repr)
def test_no_audio_at_all_is_an_error_and_never_an_empty_answer(server: str, mode: dict[str, object]) -> None:
    answer = speak(server, {"input": TEXT, **mode}, **{"X-Test-Fault": "zero_audio"})
    assert_error(answer, 500, "generation_failed", None)
    assert answer.headers["x-should-retry"] == "false"


def test_a_whole_file_that_fails_in_the_middle_is_an_error(server: str) -> None:
    answer = speak(server, {"input": TEXT}, **{"X-Test-Fault": "mid_stream"})
    assert_error(answer, 500, "generation_failed", None)
    assert answer.json()["error"]["job_id"].startswith("job_")


def test_a_raw_stream_that_fails_in_the_middle_is_cut(server: str) -> None:
    body = {"model": PRESET, "input": TEXT, "stream_format": "audio", "response_format": "pcm"}
    headers = {**KEY, "X-Test-Fault": "mid_stream"}
    heard: list[bytes] = []
    with httpx.stream("POST", f"{server}/v1/audio/speech", json=body, headers=headers, timeout=60) as answer:
        assert answer.status_code == 200
        with pytest.raises(httpx.RemoteProtocolError):
            heard.extend(answer.iter_bytes())
    assert sum(map(len, heard)) >= 0.25 * 48_000


def test_events_that_fail_in_the_middle_end_with_an_error_that_says_discard(server: str) -> None:
    answer = speak(server, {"input": TEXT, "stream": True}, **{"X-Test-Fault": "mid_stream"})
    events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
    assert [event["type"] for event in events].count("speech.audio.error") == 1
    assert events[-1]["error"] | {"partial_audio": True, "action": "discard"} == events[-1]["error"]
    assert events[-1]["error"]["code"] == "generation_failed"


@pytest.mark.parametrize("mode", [{}, {"stream_format": "audio"}, {"stream": True}], ids=repr)
def test_a_worker_that_dies_costs_time_and_nothing_else(server: str, mode: dict[str, object]) -> None:
    asked = {"input": TEXT, "seed": 3, "response_format": "pcm", **mode}
    assert _pcm(speak(server, asked, **{"X-Test-Fault": "worker_crash"})) == _pcm(speak(server, asked)) != b""


def _pcm(answer: httpx.Response) -> bytes:
    """Of a body or of events."""
    if answer.headers["content-type"] == "audio/pcm":
        return answer.content
    events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
    return b"".join(base64.b64decode(event["audio"]) for event in events if "audio" in event)


def test_a_fault_that_nobody_knows_is_refused(server: str) -> None:
    assert_error(speak(server, {}, **{"X-Test-Fault": "fire"}), 400, "invalid_value", None)


def test_a_reader_whose_job_is_deleted_is_told_that_it_is_gone(server: str) -> None:
    asked = {"request": {"model": PRESET, "input": TEXT * 20}}
    headers = {**KEY, "X-Test-Fault": "slow"}
    job = httpx.post(f"{server}/v1/audio/jobs", json=asked, headers=headers, timeout=30).json()
    url = f"{server}/v1/audio/jobs/{job['id']}"
    with ThreadPoolExecutor(1) as reader:
        waiting = reader.submit(httpx.get, f"{url}/stream", params={"from_frame": 10**9}, headers=KEY, timeout=30)
        _await(lambda: httpx.get(url, headers=KEY).json()["status"] == "running")
        assert httpx.delete(url, params={"force": True}, headers=KEY, timeout=30).status_code == 200
        assert_error(waiting.result(), 404, "job_not_found", None)


def _await(true: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not true():
        assert time.monotonic() < until
        time.sleep(0.05)
