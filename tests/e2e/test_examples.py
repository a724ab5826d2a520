"""Each file of examples/ as its reader would run it, against a whole farm."""

import subprocess
import sys
import wave
from pathlib import Path

import av
import pytest

from .harness import Farm

EXAMPLES = Path(__file__).parents[2] / "examples"
PATIENCE_S = 60


def run(farm: Farm, folder: Path, name: str, *arguments: str) -> str:
    """What it printed. It must end well, and leaves its files in `folder`."""
    program = [] if name.endswith(".sh") else [sys.executable]
    command = [*program, str(EXAMPLES / name), "--url", farm.base, "--key", "none", *arguments]
    said = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert said.returncode == 0, said.stdout + said.stderr
    return said.stdout


def seconds(file: Path) -> float:
    """Length of the audio that really decodes."""
    with av.open(str(file)) as container:
        return sum(frame.samples / frame.sample_rate for frame in container.decode(audio=0))


def test_curl_gets_a_file_a_stream_and_events(served: Farm, tmp_path: Path) -> None:
    said = run(served, tmp_path, "curl.sh")
    assert seconds(tmp_path / "whole.mp3") > 0.5
    assert len((tmp_path / "stream.pcm").read_bytes()) > 24_000
    assert "at 24000 Hz" in said
    assert '"duration_ms":' in said
    assert "speech.audio.done" in (tmp_path / "events.txt").read_text()


def test_curl_prints_what_the_server_says_about_a_refusal(served: Farm, tmp_path: Path) -> None:
    command = [str(EXAMPLES / "curl.sh"), "--url", f"{served.base}/nowhere"]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert said.returncode != 0
    assert "not_found" in said.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["curl.sh", "openai_sdk.py", "batch.py", "websocket_feed.py"])
def test_a_model_can_be_named_and_a_refusal_is_one_message(served: Farm, tmp_path: Path, name: str) -> None:
    if name == "openai_sdk.py":
        pytest.importorskip("openai")
    run(served, tmp_path, name, "--model", "hibari")
    program = [] if name.endswith(".sh") else [sys.executable]
    command = [*program, str(EXAMPLES / name), "--url", served.base, "--model", "nobody"]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert said.returncode != 0
    assert "no model 'nobody' is served here" in said.stderr
    assert "Traceback" not in said.stderr


def test_the_openai_sdk_writes_a_file_and_a_stream(served: Farm, tmp_path: Path) -> None:
    pytest.importorskip("openai")
    run(served, tmp_path, "openai_sdk.py")
    assert seconds(tmp_path / "speech.mp3") > 0.5
    assert len((tmp_path / "stream.pcm").read_bytes()) > 24_000


def test_words_that_come_one_by_one_are_spoken_to_the_end(served: Farm, tmp_path: Path) -> None:
    said = run(served, tmp_path, "websocket_feed.py", "--pace", "0")
    assert "speaking: Here is the news." in said
    assert "speaking: That is all." in said
    with wave.open(str(tmp_path / "talk.wav")) as file:
        assert file.getnframes() / file.getframerate() > 5


def test_whoever_is_interrupted_stops_and_can_speak_again(served: Farm, tmp_path: Path) -> None:
    said = run(served, tmp_path, "websocket_feed.py", "--pace", "0.2", "--barge-in")
    assert "interrupted" in said
    assert "speaking: That is all." not in said
    assert "speaking: Of course, go on." in said


def test_a_batch_speaks_what_can_be_spoken(served: Farm, tmp_path: Path) -> None:
    said = run(served, tmp_path, "batch.py")
    assert "2 of 3 spoken" in said
    assert seconds(tmp_path / "01.mp3") > 0.5
    assert not (tmp_path / "02.mp3").exists()


def test_a_batch_reads_its_texts_from_a_file(served: Farm, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("One line.\n")
    assert "1 of 1 spoken" in run(served, tmp_path, "batch.py", "texts.txt")
