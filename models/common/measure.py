"""What a device can do at most, and how long a step takes: figures beside their floors."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

COPY_BYTES = 1 << 28
MATRIX = {"cpu": 2048, "cuda": 8192}
TRIES = 5


@dataclass(frozen=True, slots=True)
class Rates:
    """Of one device and dtype, as measured."""

    bytes_per_s: float
    """Of a large copy, bytes read and bytes written."""
    flops_per_s: float
    """Of a large square product of matrices."""

    def floor_s(self, read_bytes: float, flops: float) -> float:
        """Nothing that reads so much and computes so much can be quicker."""
        return max(read_bytes / self.bytes_per_s, flops / self.flops_per_s)


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of a report; `floor` and `value` in the same unit, 0 for no floor."""

    name: str
    value: float
    unit: str
    floor: float = 0.0

    def __str__(self) -> str:
        beside = f"   floor {self.floor:10.3f}   {self.value / self.floor:5.2f} ×" if self.floor else ""
        return f"{self.name:<44}{self.value:12.3f} {self.unit:<12}{beside}"


def measure_rates(device: torch.device, dtype: torch.dtype) -> Rates:
    """Takes about a second."""
    source = torch.ones(COPY_BYTES, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    size = MATRIX[device.type]
    matrix = torch.ones(size, size, dtype=dtype, device=device)
    copy_s = best_s(device, lambda: target.copy_(source))
    return Rates(2 * COPY_BYTES / copy_s, 2 * size**3 / best_s(device, lambda: matrix @ matrix))


def best_s(device: torch.device, step: Callable[[], object], tries: int = TRIES) -> float:
    """Seconds of the quickest of some runs, after one that does not count."""
    step()
    return min(_once_s(device, step) for _ in range(tries))


def mean_s(device: torch.device, step: Callable[[], object], runs: int) -> float:
    """Seconds of a run, over some of them one behind the other."""
    return _once_s(device, lambda: [step() for _ in range(runs)]) / runs


def _once_s(device: torch.device, step: Callable[[], object]) -> float:
    _wait(device)
    began = time.perf_counter()
    step()
    _wait(device)
    return time.perf_counter() - began


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
