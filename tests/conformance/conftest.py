import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from speechmill.cli.bench.farm import free_port

from .document import DOCUMENT, FIXTURES
from .values import Variables, wav


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The server that `SPEECHMILL_CONFORMANCE_URL` names, or a farm of our own for the whole run."""
    if named := os.environ.get("SPEECHMILL_CONFORMANCE_URL"):
        yield named.rstrip("/")
        return
    folder = tmp_path_factory.mktemp("conformance")
    farm, base = start_farm(folder)
    assert farm.stdout is not None
    with farm.stdout as lines:
        said = []
        for line in lines:
            said.append(line)
            if "ready after" in line:
                yield base
                break
        else:
            pytest.fail(f"the farm did not start: {''.join(said)}")
        farm.terminate()
        lines.read()
    farm.wait(60)


def start_farm(folder: Path) -> tuple[subprocess.Popen[str], str]:
    """`speechmill up` with the profile of the cases, and its address."""
    port = free_port()
    options = ["--profile", str(FIXTURES / "conformance.toml"), "--port", str(port), "--data-dir", str(folder)]
    farm = subprocess.Popen(
        [sys.executable, "-m", "speechmill.cli.main", "up", *options],
        env={name: value for name, value in os.environ.items() if not name.startswith("SPEECHMILL_")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return farm, f"http://127.0.0.1:{port}"


@pytest.fixture(scope="session")
def reference() -> bytes:
    """A recording of two seconds that any cloning model takes."""
    made = wav(2.0)
    assert isinstance(made, bytes)
    return made


@pytest.fixture(scope="session")
def variables() -> Variables:
    """The fixture's, each overridden by an environment variable of its name."""
    own: Variables = DOCUMENT["fixture"]["variables"]
    return {name: type(value)(os.environ.get(name, value)) for name, value in own.items()}


@pytest.fixture(scope="session")
def models(server: str, variables: Variables) -> set[str]:
    """Ids that the server lists."""
    answer = httpx.get(f"{server}/v1/models", headers={"Authorization": f"Bearer {variables['KEY_A']}"}, timeout=10)
    return {model["id"] for model in answer.json()["data"]}
