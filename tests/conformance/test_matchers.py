"""The runner's own parts where they are subtle: a runner that is too kind proves nothing."""

import json
from typing import Any

import pytest
import soundfile

from .audio import UNKNOWN, check_audio, container_of
from .bodies import Reply, check_body
from .matchers import ABSENT, Mismatch, match, matches
from .values import Variables, build, wav


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (1, True),
        (False, 0),
        ({"a": None}, {}),
        ([1], [1, 2]),
        ([1, 2], [1]),
        ({}, []),
        ({"$type": "integer"}, True),
        ({"$type": "number"}, False),
        ({"$type": "integer"}, 1.0),
        ({"$type": ["string", "null"]}, 1),
        ({"$gte": 0}, True),
        ({"$gte": 1, "$lte": 2}, 3),
        ({"$regex": "^a"}, "ba"),
        ({"$in": [1, 2]}, True),
        ({"$not": {"$type": "string"}}, "a"),
        ({"$contains": ["a", "d"]}, "abc"),
        ({"$contains": 1}, [True]),
        ({"$lacks": "b"}, ["a", "b"]),
        ({"$len": 2}, [1]),
        ({"$len": {"$gte": 2}}, "a"),
        ({"$each": {"$type": "string"}}, ["a", 1]),
        ({"$some": {"a": 1}}, [{"a": 2}]),
        ({"$any": [1, 2]}, 3),
        ({"$int_text": True}, 12),
        ({"$int_text": True}, "1.0"),
        ({"$present": True}, None),
        ({"$absent": True}, ""),
        ({"$capture": "A"}, ABSENT),
        ({"a": {"$type": "string"}}, {}),
    ],
    ids=str,
)
def test_what_is_not_meant_does_not_match(wanted: Any, found: Any) -> None:
    with pytest.raises(Mismatch):
        match(wanted, found, {})


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (1, 1.0),
        ({"a": 1}, {"a": 1, "b": 2}),
        ({"a": None}, {"a": None}),
        ({"$type": ["string", "null"]}, None),
        ({"$not": {"$type": "string"}}, ABSENT),
        ({"$contains": ["a", "c"]}, "abc"),
        ({"$contains": {"a": 1}}, [{"a": 1, "b": 2}]),
        ({"$lacks": ["x", "y"]}, "abc"),
        ({"$len": {"$gte": 1}}, {"a": 1}),
        ({"$each": 1}, []),
        ({"$any": [{"$type": "null"}, {"a": 1}]}, {"a": 1}),
        ({"$int_text": True}, "-12"),
        ({"$absent": True}, ABSENT),
        ({"$absent": True}, None),
        ({"a": {"$absent": True}}, {}),
        ({"$type": "object", "a": 1}, {"a": 1}),
    ],
    ids=str,
)
def test_what_is_meant_matches(wanted: Any, found: Any) -> None:
    match(wanted, found, {})


def test_only_the_element_that_matches_is_captured() -> None:
    captured: Variables = {}
    rows = [{"id": "x", "n": 1}, {"id": "y", "n": 2}]
    match({"$some": {"id": {"$capture": "ID"}, "n": 2}}, rows, captured)
    assert captured == {"ID": "y"}
    assert not matches({"id": {"$capture": "ID"}, "n": 3}, rows[0], captured)
    assert captured == {"ID": "y"}


def test_a_variable_that_stands_alone_keeps_its_type() -> None:
    variables = {"N": 3, "NAME": "x"}
    assert build({"a": "{{N}}", "b": ["n={{N}}", "{{NAME}}"]}, variables) == {"a": 3, "b": ["n=3", "x"]}
    with pytest.raises(KeyError):
        build("{{NOBODY}}", variables)


def test_builders_make_values_and_leave_matchers_alone() -> None:
    text = {"$join": [{"$repeat": {"text": "ab", "times": 2}}, "-", {"$b64": "hi"}]}
    assert build(text, {}) == "abab-aGk="
    assert build({"$join": ["a", {"$bytes": 2}]}, {}) == b"a\0\0"
    assert build({"$jsonl": [{"a": "{{A}}"}, "raw"]}, {"A": 1}) == '{"a": 1}\nraw\n'
    assert build({"$json_text": {"$list": {"value": 0.5, "times": 2}}}, {}) == "[0.5, 0.5]"
    assert json.dumps(build({"$nest": 3}, {})).count("{") == 3
    assert build({"$uuid": "k-"}, {}) != build({"$uuid": "k-"}, {})
    assert build({"a": {"$regex": "^{{A}}"}}, {"A": 1}) == {"a": {"$regex": "^1"}}


@pytest.mark.parametrize("container", ["wav", "flac", "mp3", "ogg"])
def test_recordings_are_what_they_say(container: str, tmp_path: Any) -> None:
    made = wav(1.0, rate=24_000, channels=2, container=container)
    assert isinstance(made, bytes)
    path = tmp_path / "clip"
    path.write_bytes(made)
    info = soundfile.info(path)
    assert (info.samplerate, info.channels) == (24_000, 2)
    assert info.duration == pytest.approx(1.0, abs=0.1)


def wave_file(**options: Any) -> bytes:
    made = wav(1.0, rate=24_000, **options)
    assert isinstance(made, bytes)
    return made


def test_the_sizes_of_a_wav_are_looked_at() -> None:
    exact, endless = wave_file(), wave_file(streaming_sizes=True)
    assert endless[40:44] == UNKNOWN.to_bytes(4, "little")
    saved: Variables = {}
    check_audio(exact, {"container": "wav", "wav_sizes": "exact", "save_as": "A"}, 24_000, saved)
    assert saved["A"].seconds == 1.0
    check_audio(endless, {"container": "wav", "wav_sizes": "streaming"}, None, saved)
    for data, sizes in [(exact, "streaming"), (endless, "exact"), (exact + b"ab", None)]:
        with pytest.raises(AssertionError):
            check_audio(data, {"container": "wav", "wav_sizes": sizes}, None, saved)


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        (b"", {"container": "pcm"}),
        (b"abc", {"container": "pcm"}),
        (bytes(4800), {"container": "pcm"}),
        (wave_file(), {"container": "pcm"}),
        (wave_file(), {"container": "mp3"}),
        (wave_file(), {"container": "wav", "sample_rate": 16_000}),
        (wave_file(channels=2), {"container": "wav"}),
        (wave_file(), {"container": "wav", "min_seconds": 1.1}),
        (wave_file(), {"container": "wav", "max_seconds": 0.9}),
        (wave_file()[:-1], {"container": "wav"}),
        (wave_file(streaming_sizes=True) + wave_file(), {"container": "wav"}),
    ],
    ids=["nothing", "cut", "silence", "header", "format", "rate", "channels", "short", "long", "odd", "two headers"],
)
def test_audio_that_is_not_as_it_should_be_is_told(data: bytes, wanted: dict[str, Any]) -> None:
    with pytest.raises(AssertionError):
        check_audio(data, wanted, None, {})


def test_containers_are_known_by_their_magic() -> None:
    starts = {"mp3": b"\xff\xfb\x90\x00", "aac": b"\xff\xf1\x50\x80", "flac": b"fLaC", "wav": b"RIFF....WAVE"}
    assert {name: container_of(data) for name, data in starts.items()} == {name: name for name in starts}


def event(name: str, frame: int | None = None, **data: Any) -> str:
    at = f"id: {frame}\n" if frame is not None else ""
    return f"{at}event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n"


def delta(frame: int, audio: str = "AAAA") -> str:
    return event("speech.audio.delta", frame, audio=audio, response_format="pcm")


USAGE = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}
DETAILS = {"input_token_details": {"text_tokens": 3, "audio_tokens": 0}}
DONE = event("speech.audio.done", usage=USAGE | DETAILS)
FOUR_BYTES = "AAAAAA=="


def sse(stream: str, **wanted: Any) -> None:
    check_body(Reply(200, {}, stream.encode(), True, 0.0), {"kind": "sse", **wanted}, {})


def test_a_well_formed_stream_of_events_passes() -> None:
    sse(": keep-alive\n\n" + delta(2, FOUR_BYTES) + delta(4, FOUR_BYTES) + DONE, ids=True, min_deltas=2)
    error = event("speech.audio.error", error={"code": "x"})
    sse(error, terminal="speech.audio.error", last={"error": {"code": "x"}})


@pytest.mark.parametrize(
    "stream",
    [
        delta(2, FOUR_BYTES),
        DONE,
        delta(2, FOUR_BYTES) + DONE + DONE,
        DONE + delta(2, FOUR_BYTES),
        delta(2, FOUR_BYTES) + DONE + "data: [DONE]\n\n",
        delta(3, FOUR_BYTES) + DONE,
        delta(1) + DONE,
        delta(2, "AAAAAA") + DONE,
        delta(2, FOUR_BYTES) + event("speech.audio.done", usage={**USAGE, **DETAILS, "total_tokens": 6}),
        delta(2, FOUR_BYTES) + DONE.replace("event: speech.audio.done", "event: done"),
        (delta(2, FOUR_BYTES) + DONE).replace("\n", "\r\n"),
        delta(2, FOUR_BYTES) + DONE[:-1],
    ],
    ids=range(12),
)
def test_a_stream_of_events_with_a_fault_is_told(stream: str) -> None:
    with pytest.raises((AssertionError, KeyError, ValueError)):
        sse(stream, ids=True)


def test_an_error_needs_all_of_its_fields() -> None:
    whole = {"message": "m", "type": "t", "param": None, "code": "c"}
    for missing in [None, *whole]:
        body = {"error": {name: value for name, value in whole.items() if name != missing}}
        reply = Reply(400, {}, json.dumps(body).encode(), True, 0.0)
        if missing is None:
            check_body(reply, {"kind": "error", "code": ["a", "c"], "param": None}, {})
        else:
            with pytest.raises(AssertionError):
                check_body(reply, {"kind": "error"}, {})
