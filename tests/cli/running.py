"""Runs `speechmill` as a user does: a process of its own, clean settings, nothing in this folder."""

import os
import subprocess
import sys
from pathlib import Path

COMMAND = (sys.executable, "-m", "speechmill.cli.main")


def environment(**more: str) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SPEECHMILL_")}
    return {**clean, "NO_COLOR": "1", **more}


def speechmill(*arguments: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=cwd,
        env=environment(**variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
