"""Loads one half of a codec into a stage, where there is room for it."""

from collections.abc import Callable
from typing import Protocol, TypeVar

import torch

from speechmill.models.common.carry import Streams
from speechmill.models.common.checkpoint import Inspection, Reader, Source, Weights
from speechmill.models.common.device import exact_convolutions
from speechmill.models.common.memory import Needs, ensure_room
from speechmill.models.stage import StageOptions

STEP_FRAMES = {"cpu": 32, "cuda": 256}
"""Frames that one step takes at most, so that it stays within seconds and its activations within some GiB."""
_TENSORS = 6
"""Of activations that a step holds at once, of the channels that stand at the samples' own rate."""


class Half(Protocol):
    """A codec's decoder or encoder."""

    frame_samples: int
    channels: int
    """At the samples' own rate, where activations take most."""
    streams: Streams


AnyHalf = TypeVar("AnyHalf", bound=Half)


def load_half(
    make: Callable[[Reader], AnyHalf],
    source: Source,
    options: StageOptions,
    rename: Callable[[str], str | None] = lambda key: key,
) -> tuple[AnyHalf, Needs]:
    """What `make` makes of the tensors in float32, whatever they are stored in, and the memory that it takes.

    Raises CheckpointError for weights that do not fit, CannotLoad where there is no room for them.
    """
    device = torch.device(options.device)
    exact_convolutions(device)
    inspection = Inspection(source, rename)
    shapes = make(inspection)
    needs = {
        "weights": torch.float32.itemsize * inspection.parameters,
        "streams": options.slots * shapes.streams.bytes_each,
        "a step": STEP_FRAMES[device.type] * shapes.frame_samples * shapes.channels * _TENSORS * torch.float32.itemsize,
    }
    ensure_room(device, needs, "give the stage fewer slots, or another device")
    return make(Weights(source, device, torch.float32, rename)), needs
