"""When each word is spoken, on every way that tells it."""

import base64
import json

import httpx

from .harness import Farm

TEXT = "The birch canoe slid on the smooth planks. Glue the sheet to the dark blue background."


def speak(farm: Farm, **fields: object) -> httpx.Response:
    body = {"input": TEXT, "word_timestamps": True, "seed": 1, **fields}
    answer = httpx.post(f"{farm.base}/v1/audio/speech", json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer


def test_events_tell_the_words_that_the_header_tells_and_subtitles_show_them(served: Farm) -> None:
    whole = speak(served)
    words = json.loads(whole.headers["x-word-timestamps"])
    assert " ".join(word["word"] for word in words) == TEXT
    assert all(0 <= word["start_ms"] <= word["end_ms"] for word in words)
    assert words[-1]["end_ms"] <= int(whole.headers["x-audio-duration-ms"])
    events = [json.loads(line[6:]) for line in speak(served, stream=True).text.splitlines() if line[:6] == "data: "]
    assert [event["type"] for event in events[-2:]] == ["speech.audio.timestamps", "speech.audio.done"]
    assert events[-2]["timestamps"] == words
    job = whole.headers["x-job-id"]
    url = f"{served.base}/v1/audio/jobs/{job}/subtitles"
    assert httpx.get(url, params={"format": "json"}).json() == words
    srt = httpx.get(url)
    assert srt.headers["content-type"] == "application/x-subrip; charset=utf-8"
    assert srt.text.startswith("1\n00:00:00,")
    assert httpx.get(url, params={"format": "vtt"}).text.startswith("WEBVTT\n\n00:00:00.")
    assert httpx.get(url, params={"format": "ass"}).json()["error"]["param"] == "format"


def test_word_times_survive_another_rate_and_another_speed(served: Farm) -> None:
    plain = json.loads(speak(served).headers["x-word-timestamps"])
    slow = json.loads(speak(served, speed=0.5, sample_rate=8000).headers["x-word-timestamps"])
    assert [word["word"] for word in slow] == [word["word"] for word in plain]
    assert 1.6 < slow[-1]["end_ms"] / plain[-1]["end_ms"] < 2.2


def test_deltas_are_frames_and_their_ids_count_them(served: Farm) -> None:
    body = {"input": TEXT, "stream": True, "response_format": "pcm"}
    frames, deltas = 0, 0
    with httpx.stream("POST", f"{served.base}/v1/audio/speech", json=body, timeout=60) as answer:
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-accel-buffering"] == "no"
        for event in "".join(answer.iter_text()).split("\n\n"):
            fields = dict(line.split(": ", 1) for line in event.splitlines())
            if fields.get("event") == "speech.audio.delta":
                audio = base64.b64decode(json.loads(fields["data"])["audio"], validate=True)
                assert len(audio) % 2 == 0
                assert len(audio) <= 65_536
                frames, deltas = frames + len(audio) // 2, deltas + 1
                assert int(fields["id"]) == frames
    assert deltas > 3
