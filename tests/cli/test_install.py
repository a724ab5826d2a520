"""What the first command of a new user says when it cannot go on."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from running import environment

ROOT = Path(__file__).parents[2]
TOO_OLD = "exit 1"
NO_VENV = 'case "$2" in *ensurepip*) exit 1 ;; *) exit 0 ;; esac'
NO_NETWORK = {"PIP_CONFIG_FILE": "/dev/null", "PIP_PROXY": "http://127.0.0.1:9", "PIP_RETRIES": "1"}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of all that the installation needs before it is stopped."""
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    return tmp_path


def install(checkout: Path, **variables: str) -> str:
    """What it says on standard error before it gives up."""
    done = subprocess.run(
        [checkout / "requirements" / "install.sh", "worker"],
        env={**environment(PIP_FIND_LINKS=""), **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout
    assert done.stderr.startswith("speechmill: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


@pytest.mark.parametrize(
    ("script", "told"), [(TOO_OLD, "is not Python 3.11 or newer"), (NO_VENV, "has no venv module")]
)
def test_an_unfit_python_is_one_line(script: str, told: str, checkout: Path) -> None:
    python = checkout / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    assert told in install(checkout, PYTHON=str(python))


def test_no_network_is_one_line(checkout: Path) -> None:
    told = install(checkout, PYTHON=sys.executable, **NO_NETWORK)
    assert "the package index does not answer" in told
