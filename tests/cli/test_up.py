"""`speechmill up` end to end: it starts, speaks, mends itself and leaves nothing behind."""

import json
import os
import queue
import shlex
import signal
import subprocess
import threading
import time
import wave
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy as np
import pytest
from running import COMMAND, alive, environment, speechmill

from speechmill.cli import up as command
from speechmill.cli.bench.farm import free_port
from speechmill.cli.bench.processes import descendants
from speechmill.cli.remote import Refused
from speechmill.configs.settings import load
from speechmill.workers.supervisor import Supervisor

PATIENCE_S = 90.0


class Up:
    """A running `speechmill up` whose lines can be waited for."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.port = free_port()
        self.lines: list[str] = []
        self._coming: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.process = subprocess.Popen(
            [*COMMAND, "up", "--port", str(self.port), "--data-dir", "data", *options],
            cwd=folder,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as output:
            for line in output:
                self._coming.put(line.rstrip())
        self._coming.put(None)

    def wait_for(self, wanted: str) -> str:
        until = time.monotonic() + PATIENCE_S
        while (line := self._coming.get(timeout=max(until - time.monotonic(), 0.1))) is not None:
            self.lines.append(line)
            if wanted in line:
                return line
        raise AssertionError(f"no line says {wanted!r}: {self.lines}")

    def wait(self) -> int:
        code = self.process.wait(PATIENCE_S)
        self._reader.join()
        while (line := self._coming.get()) is not None:
            self.lines.append(line)
        return code

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.wait()


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One farm for the module; the last test ends it."""
    up = Up(tmp_path_factory.mktemp("farm"))
    up.wait_for("ready after")
    yield up
    up.kill()


def assert_sound(path: Path) -> None:
    with wave.open(str(path), "rb") as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), np.int16)
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, 24000)
        assert len(samples) == file.getnframes()
    assert len(samples) > 24000
    assert np.abs(samples).max() > 1000


def eventually(true: Callable[[], bool]) -> bool:
    until = time.monotonic() + 5
    while not true() and time.monotonic() < until:
        time.sleep(0.05)
    return true()


def test_once_speaks_a_first_sentence_and_leaves_nothing_behind(tmp_path: Path) -> None:
    up = Up(tmp_path, "--hello", "hello.wav", "--once")
    up.wait_for("ready after")
    started = descendants(up.process.pid)
    assert up.wait() == 0, up.lines
    assert len(started) >= 6, started  # Valkey, S3, API, worker, Celery's worker and clock
    assert [command for pid, command in started.items() if alive(pid)] == []
    assert up.lines[-1] == "speechmill: stopped"
    assert_sound(tmp_path / "hello.wav")
    assert {path.name for path in tmp_path.iterdir()} == {"data", "hello.wav"}


class Refusing(BaseHTTPRequestHandler):
    """Has a model that cannot speak without more than a text."""

    def do_POST(self) -> None:
        self.send_response(400)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(b'{"error": {"message": "a recording is needed", "code": "ref_audio_required"}}')

    def log_message(self, *_: object) -> None:
        pass


def test_a_model_that_needs_more_than_a_text_is_served_without_a_first_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    supervisor = Supervisor(load(), lambda line: None)
    with HTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        base = f"http://127.0.0.1:{server.server_port}"
        command._greet(base, tmp_path / "hello.wav", supervisor, once=False)
        assert "no first sentence: a recording is needed" in "".join(capsys.readouterr())
        with pytest.raises(Refused, match="a recording is needed"):
            command._greet(base, tmp_path / "hello.wav", supervisor, once=True)
        server.shutdown()


@pytest.mark.parametrize(
    ("assignments", "named"),
    [
        ([], None),
        (['models=["hibari", "auk"]'], "hibari"),
        (['models=["auk", "hibari"]', "default_model=hibari"], None),
    ],
)
def test_the_line_to_try_names_a_model_where_a_request_must(
    assignments: list[str], named: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    command._say_how("http://127.0.0.1:8091", load(assignments=assignments))
    words = shlex.split(capsys.readouterr().out.splitlines()[-1])
    assert json.loads(words[words.index("-d") + 1]).get("model") == named


def test_say_writes_what_the_farm_speaks(farm: Up) -> None:
    url = f"http://127.0.0.1:{farm.port}"
    done = speechmill("say", "Good morning to you all.", "-o", "morning.wav", "--url", url, cwd=farm.folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("morning.wav: ")
    assert_sound(farm.folder / "morning.wav")


def test_say_passes_on_what_the_farm_refuses(farm: Up) -> None:
    url = f"http://127.0.0.1:{farm.port}"
    done = speechmill("say", "hello", "--voice", "nobody", "--url", url, cwd=farm.folder)
    assert done.returncode == 1
    assert "no such voice" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_new_farm_has_no_dead_letters(farm: Up) -> None:
    done = speechmill("dead", "list", "--set", "data_dir=data", cwd=farm.folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "no dead letters\n")


def test_a_second_farm_on_the_same_folder_is_one_line(farm: Up) -> None:
    done = speechmill("up", "--port", str(free_port()), "--data-dir", "data", cwd=farm.folder)
    assert done.returncode == 1
    assert done.stderr.startswith("speechmill: another farm uses ")
    assert done.stderr.count("\n") == 1


def test_a_data_folder_that_cannot_be_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = speechmill("up", "--port", str(free_port()), "--data-dir", "file/data", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr == "speechmill: file/data/logs cannot be used for logs: Not a directory\n"


def test_a_child_that_crashes_is_started_again_and_said_so(farm: Up) -> None:
    running = descendants(farm.process.pid)
    beat = next(pid for pid, command in running.items() if command.endswith("celery beat"))
    os.kill(beat, signal.SIGKILL)
    assert "killed by SIGKILL" in farm.wait_for("beat ended")
    assert eventually(lambda: any(c.endswith("celery beat") for c in descendants(farm.process.pid).values()))


def test_ctrl_c_ends_every_process(farm: Up) -> None:
    started = descendants(farm.process.pid)
    farm.process.send_signal(signal.SIGINT)
    assert farm.wait() == 0, farm.lines
    assert [command for pid, command in started.items() if alive(pid)] == []
    assert "speechmill: stopping" in farm.lines
    assert farm.lines[-1] == "speechmill: stopped"
