"""Errors that steer a client's retries."""

import pytest

from speechmill.api.errors import respond, translate
from speechmill.infra.errors import Overloaded


@pytest.mark.parametrize(("wait_s", "told_s"), [(0.0, "1"), (1.2, "2"), (500.0, "500")])
def test_an_overloaded_farm_says_truthfully_how_long_it_is_so(wait_s: float, told_s: str) -> None:
    answer = respond(translate(Overloaded("busy", retry_after_s=wait_s)))
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == told_s
    assert answer.headers["x-should-retry"] == "true"
