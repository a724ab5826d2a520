"""One frame step as a CUDA graph: a single launch in place of thousands."""

from collections.abc import Callable

import torch
from torch import Tensor

from speechmill.models.common.device import on_device

WARM_RUNS = 3
"""Before recording, so that libraries have made their choices and their workspaces."""


class FrameGraph:
    """A step over a fixed number of rows. Which slots they are is read when it runs."""

    def __init__(self, step: Callable[[Tensor], Tensor], slots: int, device: torch.device) -> None:
        """`step`: slot numbers [slots] → [slots, n]; slot number `slots` is nobody's and may be stepped at will."""
        self._index = torch.full((slots,), slots, device=device)
        self._graph = torch.cuda.CUDAGraph()
        with on_device(device):
            stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            stream.wait_stream(torch.cuda.current_stream(device))
            with torch.cuda.stream(stream):
                for _ in range(WARM_RUNS):
                    step(self._index)
            torch.cuda.current_stream(device).wait_stream(stream)
            with torch.cuda.graph(self._graph):
                self._made = step(self._index)

    def __call__(self, index: Tensor) -> Tensor:
        """What it returns is overwritten by the next call."""
        with on_device(self._index.device):
            self._index.copy_(index)
            self._graph.replay()
        return self._made
