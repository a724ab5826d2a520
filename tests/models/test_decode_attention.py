"""The decode kernel in Triton's interpreter, against softmax attention in float64."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from speechmill.models.common import decode_attention
from speechmill.models.stage import CannotLoad

GUEST = Path(__file__).with_name("decode_kernel_guest.py")


@pytest.mark.skipif(not decode_attention.is_available(), reason="Triton is not installed")
def test_the_kernel_is_softmax_attention_however_it_is_split_and_reads_nothing_else() -> None:
    """In a process of its own: the interpreter is chosen when Triton is imported."""
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, str(GUEST)], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_is_off_without_a_gpu_or_by_the_switch_and_can_be_required(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = torch.device("cpu")
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert not decode_attention.wanted(cpu)
    monkeypatch.setenv(decode_attention.SWITCH, "required")
    with pytest.raises(CannotLoad, match="required, but"):
        decode_attention.wanted(cpu)
    monkeypatch.setenv(decode_attention.SWITCH, "on")
    with pytest.raises(CannotLoad, match="known: auto, off, 0, required"):
        decode_attention.wanted(cpu)
    for off in ("off", "0"):
        monkeypatch.setenv("TRITON_INTERPRET", "1")
        monkeypatch.setenv(decode_attention.SWITCH, off)
        assert not decode_attention.wanted(cpu)


def test_why_there_is_no_kernel_is_told() -> None:
    assert decode_attention.is_available() == (decode_attention.load_error() is None)
