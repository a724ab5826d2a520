"""Runs `speechmill` as a user does: a process of its own, clean settings, nothing in this folder."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
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


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def descendants(pid: int) -> dict[int, str]:
    """Every process below `pid`, with its command line."""
    listed = subprocess.run(["ps", "-Ao", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    children: dict[int, list[tuple[int, str]]] = {}
    for line in listed.splitlines():
        own, parent, *command = line.split(maxsplit=2)
        children.setdefault(int(parent), []).append((int(own), "".join(command)))

    def below(parent: int) -> Iterator[tuple[int, str]]:
        for child, command in children.get(parent, ()):
            yield child, command
            yield from below(child)

    return dict(below(pid))


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
