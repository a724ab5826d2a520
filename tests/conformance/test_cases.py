"""The shared cases of the speech API, each a test of its own, against a whole farm."""

from typing import Any

import pytest

from .document import DOCUMENT
from .steps import TIMEOUT_S, Runner
from .values import Variables

SERVED_AREAS = ("speech", "error", "stream", "ws", "voice", "ops", "job")
SERVED_SECTIONS = ("5.1",)
"""Of the other areas."""
UNSERVED = ("job-009", "job-010")
"""Jobs in bulk."""
SERVED_TAGS = ("cors", "rate_limit", "fault_injection")


@pytest.mark.parametrize("case", DOCUMENT["cases"], ids=lambda case: case["id"])
def test_case(case: dict[str, Any], server: str, variables: Variables, models: set[str]) -> None:
    if case["id"] in UNSERVED or (case["area"] not in SERVED_AREAS and case["spec"] not in SERVED_SECTIONS):
        pytest.skip("not served yet")
    if missing := {variables[name] for name in case["models"]} - models:
        pytest.skip(f"the server has no {', '.join(missing)}")
    if missing := set(case["requires"]) - set(SERVED_TAGS):
        pytest.skip(f"the server is without {', '.join(missing)}")
    Runner(server, variables, case.get("timeout_s", TIMEOUT_S)).run(case["steps"])
