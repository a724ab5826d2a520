"""Speed is measured with random weights."""

import pytest

from speechmill.models.measure import measure


def test_a_family_is_measured_up_to_its_first_audio() -> None:
    figures = {figure.name: figure.value for figure in measure("qwen3_tts", "tiny", "cpu", [], 1)}
    assert figures["first audio"] > figures["prefill of 500 and one frame"] > 0


@pytest.mark.parametrize(
    ("family", "size", "told"),
    [("qwen3_tts", "9b", "no size '9b'; it has: tiny, 0.6b, 1.7b"), ("hibari", "", "no family that can be measured")],
)
def test_what_cannot_be_measured_is_said_in_a_line(family: str, size: str, told: str) -> None:
    with pytest.raises(LookupError, match=told):
        list(measure(family, size, "cpu", [1], 1))
