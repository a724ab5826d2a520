"""What the loop does when a stage fails in a way that no task is to blame for."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from speechmill.infra.keys import out_log
from speechmill.infra.protocol import LogReader
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


def test_a_work_has_come_as_far_as_its_log_or_where_it_writes_none_as_far_as_it_has_read() -> None:
    store = work_of(stage="store")
    assert store.position == 0
    store.reader = LogReader()
    store.reader.pass_by(500)
    assert store.position == 500
    finish = replace(work_of(stage="finish"), log=out_log("job", 1), end=300, reader=store.reader)
    assert finish.position == 300
