"""What the body of an answer must be, by kind."""

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .audio import check_audio
from .matchers import match
from .values import Variables

TERMINAL = ("speech.audio.done", "speech.audio.error")
MAX_DELTA_BYTES = 64 << 10
WAV_HEADER_BYTES = 44


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer as it came. `complete`: the body ended as the server said it would."""

    status: int
    headers: Mapping[str, str]
    content: bytes
    complete: bool
    seconds: float

    @property
    def sample_rate(self) -> int | None:
        declared = self.headers.get("x-sample-rate")
        return int(declared) if declared is not None else None


def check_body(reply: Reply, wanted: dict[str, Any], variables: Variables) -> None:
    """`variables`: where captures and saved audio go. Raises AssertionError."""
    _KINDS[wanted["kind"]](reply, wanted, variables)


def _check_json(reply: Reply, wanted: dict[str, Any], variables: Variables) -> None:
    match(wanted.get("match", {}), json.loads(reply.content), variables)


def _check_error(reply: Reply, wanted: dict[str, Any], variables: Variables) -> None:
    body = json.loads(reply.content)
    error = body["error"]
    assert {"message", "type", "param", "code"} <= error.keys(), error
    match({"message": {"$type": "string"}, "code": {"$type": "string"}}, error, {}, "error")
    if "code" in wanted:
        codes = wanted["code"] if isinstance(wanted["code"], list) else [wanted["code"]]
        assert error["code"] in codes, error
    for name in {"param", "type"} & wanted.keys():
        assert error[name] == wanted[name], error
    match(wanted.get("match", {}), body, variables)


def _check_audio(reply: Reply, wanted: dict[str, Any], variables: Variables) -> None:
    check_audio(reply.content, wanted, reply.sample_rate, variables)


def _check_ndjson(reply: Reply, wanted: dict[str, Any], variables: Variables) -> None:
    match(wanted["match"], [json.loads(line) for line in reply.content.splitlines() if line.strip()], variables)


def _check_text(reply: Reply, wanted: dict[str, Any], variables: Variables) -> None:
    match(wanted.get("match", {"$type": "string"}), reply.content.decode(), variables)


def _check_empty(reply: Reply, wanted: dict[str, Any], variables: Variables) -> None:
    assert not reply.content, f"{len(reply.content)} bytes"


@dataclass(frozen=True, slots=True)
class Event:
    """One server-sent event with its JSON."""

    id: str | None
    data: dict[str, Any]

    @property
    def type(self) -> str:
        return str(self.data["type"])


def events(stream: str) -> Iterator[Event]:
    """Raises AssertionError for anything but `id:`, `event:`, one `data:` line and comments."""
    assert "\r" not in stream, "lines end with a line feed alone"
    assert not stream or stream.endswith("\n\n"), "the last event is cut"
    for block in stream.split("\n\n"):
        lines = [line for line in block.split("\n") if line and not line.startswith(":")]
        if not lines:
            continue
        fields = dict(line.split(": ", 1) for line in lines)
        assert len(fields) == len(lines), f"a field twice: {block[:200]}"
        assert fields.keys() <= {"id", "event", "data"}, block[:200]
        assert fields["data"] != "[DONE]"
        data = json.loads(fields["data"])
        assert data["type"] == fields["event"]
        yield Event(fields.get("id"), data)


def _check_sse(reply: Reply, wanted: dict[str, Any], variables: Variables) -> None:
    came = list(events(reply.content.decode()))
    assert [event.type for event in came if event.type in TERMINAL] == [wanted.get("terminal", TERMINAL[0])]
    last = came[-1]
    assert last.type in TERMINAL, "something follows the end"
    deltas = [event for event in came if event.type == "speech.audio.delta"]
    assert len(deltas) >= wanted.get("min_deltas", 1 if last.type == TERMINAL[0] else 0), f"{len(deltas)} deltas"
    pieces = [_piece(delta.data) for delta in deltas]
    if wanted.get("ids"):
        _check_ids(deltas, pieces, wanted.get("start_frame", 0))
    for delta in deltas:
        match(wanted.get("delta", {}), delta.data, variables, "delta")
    match(wanted.get("last", {}), last.data, variables, "last")
    if last.type == TERMINAL[0] and wanted.get("usage", True):
        _check_usage(last.data["usage"])
    if "audio" in wanted:
        rate = deltas[0].data.get("sample_rate") if deltas else None
        check_audio(b"".join(pieces), wanted["audio"], rate, variables)


def _piece(delta: dict[str, Any]) -> bytes:
    """What one delta carries, decoded on its own."""
    piece = base64.b64decode(delta["audio"], validate=True)
    assert len(piece) <= MAX_DELTA_BYTES
    if delta.get("response_format") == "pcm":
        assert len(piece) % (2 * delta.get("channels", 1)) == 0, "a frame is cut"
    return piece


def _check_ids(deltas: list[Event], pieces: list[bytes], frames: int) -> None:
    for delta, piece in zip(deltas, pieces, strict=True):
        header = WAV_HEADER_BYTES if piece.startswith(b"RIFF") else 0
        frames += (len(piece) - header) // (2 * delta.data.get("channels", 1))
        assert delta.id == str(frames)


def _check_usage(usage: dict[str, Any]) -> None:
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"], usage
    details = usage["input_token_details"]
    assert usage["input_tokens"] == details["text_tokens"] + details["audio_tokens"], usage


_KINDS: dict[str, Callable[[Reply, dict[str, Any], Variables], None]] = {
    "json": _check_json,
    "error": _check_error,
    "audio": _check_audio,
    "sse": _check_sse,
    "ndjson": _check_ndjson,
    "text": _check_text,
    "empty": _check_empty,
}
