"""Speed is measured with random weights."""

import re

import pytest
from typer.testing import CliRunner

from speechmill.cli.main import app
from speechmill.models.measure import measure


def test_a_family_is_measured_up_to_its_first_audio() -> None:
    figures = {figure.name: figure.value for figure in measure("qwen3_tts", "tiny", "cpu", [], 1)}
    assert figures["first audio"] > figures["prefill of 500 and one frame"] > 0


@pytest.mark.parametrize(
    ("family", "size", "told"),
    [("qwen3_tts", "9b", "no size '9b'; it has: tiny, 0.6b, 1.7b"), ("hibari", "", "those are: fish_speech, ")],
)
def test_what_cannot_be_measured_is_said_in_a_line(family: str, size: str, told: str) -> None:
    with pytest.raises(LookupError, match=told):
        list(measure(family, size, "cpu", [1], 1))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--device", "cuda:99"], "device 'cuda:99' is not there: .*; --device cpu does without$"),
        (["--device", "gpu"], "device 'gpu' is none of cpu, cuda, cuda:N$"),
    ],
)
def test_a_device_that_is_not_there_is_one_line(options: list[str], told: str) -> None:
    done = CliRunner().invoke(app, ["bench", "model", "qwen3_tts", "--size", "tiny", *options])
    assert re.search(told, str(done.exception))


@pytest.mark.parametrize("batches", ["1,x", "0", "1,,8", ""])
def test_batches_that_are_no_numbers_are_told_with_such_that_are(batches: str) -> None:
    done = CliRunner().invoke(app, ["bench", "model", "qwen3_tts", "--size", "tiny", "--batches", batches])
    assert (done.exit_code, "whole numbers above 0" in done.output) == (2, True)
