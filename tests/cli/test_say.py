"""`speechmill say` against a farm that answers what a test has it say."""

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from speechmill.cli.main import app
from speechmill.cli.say import Spoken, _tell

DELTA = {"type": "speech.audio.delta", "audio": base64.b64encode(bytes(4800)).decode()}


@contextmanager
def answering(*events: dict[str, Any]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The farm's address, and the requests that it got."""
    asked: list[dict[str, Any]] = []

    class Farm(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.send_header("x-sample-rate", "24000")
            self.send_header("x-channels", "1")
            self.end_headers()
            for event in events:
                self.wfile.write(f": comment\n\nevent: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Farm) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()


def say(url: str, out: Path, *options: str) -> Result:
    return CliRunner().invoke(app, ["say", "Hello.", "--url", url, "-o", str(out), *options])


@pytest.mark.parametrize(("reason", "warned"), [("stop", False), ("length", True)])
def test_speech_that_a_limit_cut_off_is_told(tmp_path: Path, reason: str, warned: bool) -> None:
    with answering(DELTA, {"type": "speech.audio.done", "finish_reason": reason}) as (url, _):
        plain, told = (say(url, tmp_path / "a.wav", *options) for options in ((), ("--json",)))
    assert (tmp_path / "a.wav").stat().st_size == 4844
    assert (plain.exit_code, "a limit cut the speech off" in plain.stderr) == (0, warned)
    assert json.loads(told.stdout)["finish_reason"] == reason


@pytest.mark.parametrize(
    ("events", "told"),
    [
        ((DELTA, {"type": "speech.audio.error", "error": {"message": "no sound came"}}), "no sound came"),
        ((DELTA,), "broke off before the end of the speech"),
    ],
)
def test_speech_that_fails_on_its_way_leaves_no_file(
    tmp_path: Path, events: tuple[dict[str, Any], ...], told: str
) -> None:
    with answering(*events) as (url, _):
        assert told in str(say(url, tmp_path / "a.wav").exception)
    assert list(tmp_path.iterdir()) == []


def test_a_recording_may_be_given_for_its_timbre_alone(tmp_path: Path) -> None:
    (tmp_path / "anna.wav").write_bytes(b"sound")
    with answering(DELTA, {"type": "speech.audio.done", "finish_reason": "stop"}) as (url, asked):
        say(url, tmp_path / "a.wav", "--ref-audio", str(tmp_path / "anna.wav"), "--x-vector-only")
        say(url, tmp_path / "a.wav")
    assert [request.get("x_vector_only_mode") for request in asked] == [True, None]


@pytest.mark.parametrize(("audio_s", "told"), [(1.24, "0.6 ×"), (19.5, "9.8 ×"), (25.0, "12 ×")])
def test_slow_speech_is_told_by_tenths_of_real_time(
    audio_s: float, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _tell(Path("a.wav"), Spoken(audio_s, 0.5, 2.0, "stop"), as_json=False)
    assert f"ms, {told} real time" in capsys.readouterr().out
