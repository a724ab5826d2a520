"""What the loop does when a stage fails in a way that no task is to blame for."""

from collections.abc import Sequence

import pytest

from speechmill.models.stage import Emission, Resume
from speechmill.workers.loop import DeviceLost, Loop
from speechmill.workers.runner import Runner
from speechmill.workers.work import Open, Outcome

from .toy import CARD, Toy
from .works import work_of


class AcceleratorError(RuntimeError):
    """As PyTorch calls what every call raises once a kernel has gone wrong."""


class OnBrokenDevice(Toy):
    def step(self, slots: Sequence[int]) -> list[Emission]:
        raise AcceleratorError("CUDA error: device-side assert triggered")


def test_a_process_whose_gpu_is_lost_blames_nobody_and_ends() -> None:
    outcomes: list[Outcome] = []
    runner = Runner("toy/voice", CARD.stages[0], OnBrokenDevice(), 4)
    loop = Loop([runner], outcomes.append)
    assert runner.reserve()
    loop.put(Open(work_of(), Resume(), {}))
    with pytest.raises(DeviceLost):
        loop.run()
    assert outcomes == []
