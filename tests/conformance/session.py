"""A WebSocket session of a case: its script, step by step."""

import json
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from .audio import check_audio
from .matchers import match, matches
from .values import Variables, build

PATH = "/v1/audio/speech/stream"
PATIENCE_S = 60.0
MAX_FRAME_BYTES = 64 << 20


def run_session(base: str, session: dict[str, Any], key: str | None, variables: Variables) -> None:
    """Raises AssertionError for the first step of the script that does not hold."""
    if "expect_handshake_status" in session:
        with pytest.raises(InvalidStatus) as refused, _connect(base, session, key):
            pass
        assert refused.value.response.status_code == session["expect_handshake_status"]
        return
    with _connect(base, session, key) as connection:
        script = Script(connection, variables)
        for step in session["script"]:
            script.run(step)


def _connect(base: str, session: dict[str, Any], key: str | None) -> ClientConnection:
    url = base.replace("http", "ws", 1) + PATH
    via = session.get("auth_via", "header") if key is not None else ""
    return connect(
        f"{url}?api_key={quote(key or '', safe='')}" if via == "query" else url,
        additional_headers={"Authorization": f"Bearer {key}"} if via == "header" else {},
        subprotocols=[f"openai-insecure-api-key.{key}", "realtime"] if via == "subprotocol" else None,  # type: ignore[list-item]  # plain strings are what goes over the wire
        max_size=MAX_FRAME_BYTES,
        proxy=None,
    )


class Script:
    """What the client does and what it must hear."""

    def __init__(self, connection: ClientConnection, variables: Variables) -> None:
        self._connection = connection
        self._variables = variables

    def run(self, step: dict[str, Any]) -> None:
        """One step."""
        kinds: dict[str, Callable[[Any], None]] = {
            "send": lambda message: self._connection.send(json.dumps(message, ensure_ascii=False)),
            "send_text": lambda text: self._connection.send(text),
            "send_binary": lambda count: self._connection.send(bytes(count)),
            "sleep_ms": lambda ms: time.sleep(ms / 1000),
            "expect": self._expect,
            "drain_until": self._drain_until,
            "expect_silence_ms": self._expect_silence,
            "expect_close": self._expect_close,
            "expect_unit": self._expect_unit,
        }
        ((kind, argument),) = step.items()
        kinds[kind](build(argument, self._variables))

    def _next(self) -> str | bytes:
        return self._connection.recv(timeout=PATIENCE_S)

    def _next_json(self) -> dict[str, Any]:
        message = self._next()
        assert isinstance(message, str), f"{len(message)} bytes of audio, and not a message"
        decoded = json.loads(message)
        assert isinstance(decoded, dict)
        return decoded

    def _expect(self, wanted: dict[str, Any]) -> None:
        match(wanted, self._next_json(), self._variables, "message")

    def _drain_until(self, wanted: dict[str, Any]) -> None:
        while True:
            message = self._next()
            if isinstance(message, str) and matches(wanted, json.loads(message), self._variables):
                return

    def _expect_silence(self, ms: int) -> None:
        with pytest.raises(TimeoutError):
            self._connection.recv(timeout=ms / 1000)

    def _expect_close(self, codes: int | list[int]) -> None:
        with pytest.raises(ConnectionClosed) as closed:
            self._next()
        assert closed.value.rcvd is not None, "cut, not closed"
        assert closed.value.rcvd.code in (codes if isinstance(codes, list) else [codes])

    def _expect_unit(self, wanted: dict[str, Any]) -> None:
        """`audio.start`, frames of audio, perhaps an error, `audio.done`."""
        place = {"utterance_index": wanted.get("utterance", 0), "sentence_index": wanted.get("sentence", 0)}
        told = {name: wanted[name] for name in ("sentence_text", "format", "sample_rate", "channels") if name in wanted}
        start = self._next_json()
        match({"type": "audio.start", **place, **told}, start, self._variables, "audio.start")
        frames: list[bytes] = []
        while isinstance(message := self._next(), bytes):
            frames.append(message)
        end = json.loads(message)
        failed = wanted.get("error", False)
        if failed:
            match({"type": "error", "message": {"$type": "string"}}, end, self._variables, "error")
            end = self._next_json()
        total = sum(map(len, frames))
        done = {"type": "audio.done", **place, "total_bytes": total, "error": failed}
        match(done, end, self._variables, "audio.done")
        assert len(frames) >= wanted.get("min_frames", 0 if failed else 1), f"{len(frames)} frames"
        assert len(frames) <= wanted.get("max_frames", len(frames)), f"{len(frames)} frames"
        if start["format"] == "pcm":
            assert not any(len(frame) % 2 for frame in frames), "a frame is cut"
        if "audio" in wanted:
            check_audio(b"".join(frames), wanted["audio"], start.get("sample_rate"), self._variables)
