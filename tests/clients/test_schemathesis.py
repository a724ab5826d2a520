"""Schemathesis makes requests up from /openapi.json, good and bad ones, for every route of a farm at work."""

import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from .conftest import Place

CHECKS = "not_a_server_error,response_schema_conformance,content_type_conformance"


def test_every_route_says_what_its_errors_look_like(anywhere: Place) -> None:
    described = httpx.get(f"{anywhere.base}/openapi.json", timeout=10).json()
    for operations in described["paths"].values():
        for operation in operations.values():
            shapes = [operation["responses"][codes]["content"] for codes in ("4XX", "5XX")]
            assert shapes == [{"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}] * 2


def test_whatever_is_sent_is_answered_as_described_and_never_with_a_5xx(anywhere: Place, tmp_path: Path) -> None:
    pytest.importorskip("schemathesis")
    extent = ["--phases", "examples,coverage,fuzzing", "--max-examples", "10", "--seed", "1"]
    options = ["--checks", CHECKS, "--continue-on-failure", "--request-timeout", "30", "--no-color"]
    said = subprocess.run(
        [sys.executable, "-m", "schemathesis.cli", "run", f"{anywhere.base}/openapi.json", *extent, *options],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert said.returncode == 0, said.stdout + said.stderr
