"""What the supervisor says when it cannot go on."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from speechmill.configs.settings import load
from speechmill.infra.precomputed import SKIPPED
from speechmill.workers import supervisor as supervisor_module
from speechmill.workers.supervisor import Child, ChildFailed, Supervisor

STUBBORN = "import signal, time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(60)"


def test_a_data_folder_that_vanished_is_one_clear_line(tmp_path: Path) -> None:
    log = tmp_path / "gone" / "worker.log"
    supervisor = Supervisor(load(), lambda line: None, [Child("worker", ("worker",), log)])
    with pytest.raises(ChildFailed, match=f"^{log}: No such file or directory$"):
        supervisor.run(lambda: True)


def test_what_the_stages_keep_in_memory_is_told_of_this_start_only(tmp_path: Path) -> None:
    def said(**fields: object) -> str:
        return json.dumps({"event": "loaded", "device": "cuda:0", **fields}) + "\n"

    log = tmp_path / "worker.log"
    log.write_text(said(pool="old/talker", memory_mb={"weights": 1}))
    child = Child("worker", ("worker",), log, log_start=log.stat().st_size)
    with log.open("a") as more:
        more.write(said(pool="farm/finish", memory_mb={}) + "Traceback (most recent call last):\n")
        more.write(said(pool="fish/talker", memory_mb={"weights": 9100, "streams": 570}) + '{"event": "lo')
    told = list(Supervisor(load(), lambda line: None, [child]).memory())
    assert told == ["fish/talker on cuda:0: weights 9.10 GB, streams 570 MB"]


def test_voices_that_the_api_skips_are_told(tmp_path: Path) -> None:
    log = tmp_path / "api.log"
    event = {"event": SKIPPED, "voice": "anna", "source": "voices", "error": "its file is not there"}
    log.write_text(json.dumps({"event": "started"}) + "\n" + json.dumps(event) + "\n")
    told = list(Supervisor(load(), lambda line: None, [Child("api", ("api",), log)]).skipped())
    assert told == ["voice anna of voices is skipped: its file is not there"]


@pytest.mark.parametrize(
    ("held", "told"),
    [
        ((3, 0), "worker-0: finishing what is being spoken; press Ctrl-C again to stop at once"),
        ((0, 0), "worker-0, worker-1: stopping; press Ctrl-C again to stop at once"),
    ],
)
def test_who_is_slow_to_end_is_said_to_speak_only_where_it_does(
    held: tuple[int, int], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor_module, "TELL_AFTER_S", 0.0)
    said: list[str] = []
    supervisor = Supervisor(load(), said.append)
    for index, count in enumerate(held):
        child = Child(f"worker-{index}", ("worker",), tmp_path / f"{index}.log")
        child.log.write_text(json.dumps({"event": "draining", "held": count}) + "\n")
        child.process = subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE)
        assert child.process.stdout is not None
        child.process.stdout.readline()
        child.process.stdout.close()
        supervisor.children.append(child)
    supervisor._end(supervisor.children, patience_s=0.5)
    assert said == [told]
