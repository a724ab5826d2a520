"""The shared cases of the speech API, each a test of its own, against a whole farm."""

from typing import Any

import pytest

from .document import DOCUMENT
from .steps import TIMEOUT_S, Runner
from .values import Variables

SERVED_TAGS = ("cors", "rate_limit", "fault_injection")


@pytest.mark.parametrize("case", DOCUMENT["cases"], ids=lambda case: case["id"])
def test_case(case: dict[str, Any], server: str, variables: Variables, models: set[str]) -> None:
    if missing := {variables[name] for name in case["models"]} - models:
        pytest.skip(f"the server has no {', '.join(missing)}")
    if missing := set(case["requires"]) - set(SERVED_TAGS):
        pytest.skip(f"the server is without {', '.join(missing)}")
    Runner(server, variables, case.get("timeout_s", TIMEOUT_S)).run(case["steps"])
