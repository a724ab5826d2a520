"""What lies in a checkpoint's folder, and a model that is made of it once it is known to fit."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TypeVar

import torch

from speechmill.models.common.checkpoint import Inspection, Reader, Safetensors, Source, StateDict, Weights
from speechmill.models.common.memory import ensure_room
from speechmill.models.stage import CheckpointError

T = TypeVar("T")
Rename = Callable[[str], str | None]
"""From a tensor's stored key to its name in the model, None where it is no part of it."""
Make = Callable[[Reader, torch.device], T]
_INDEX, _WHOLE, _PICKLED = "model.safetensors.index.json", "model.safetensors", "model.pth"


def find_source(folder: Path) -> Source:
    """A model's tensors, as Transformers names their files. Raises CheckpointError if there are none."""
    for name in (_INDEX, _WHOLE):
        if (folder / name).is_file():
            return Safetensors(folder / name)
    if (folder / _PICKLED).is_file():
        return StateDict(folder / _PICKLED)
    raise CheckpointError(f"{folder} has none of {_INDEX}, {_WHOLE}, {_PICKLED}")


def finding_faults(check: Callable[[Path], list[str]]) -> Callable[[Path], list[str]]:
    """A check of a folder; where it cannot go on, for a CheckpointError, that is what it finds."""

    @wraps(check)
    def checked(folder: Path) -> list[str]:
        try:
            return check(folder)
        except CheckpointError as error:
            return [str(error)]

    return checked


def inspect(make: Make[object], source: Source, rename: Rename) -> Inspection:
    """What a model would take, and what does not fit, without reading a tensor."""
    inspection = Inspection(source, rename)
    make(inspection, torch.device("meta"))
    return inspection


def build(make: Make[T], source: Source, rename: Rename, device: torch.device, dtype: torch.dtype) -> tuple[T, int]:
    """A model with its weights in place, and the bytes that these take.

    Raises CannotLoad, in one line, where the device has no room for it, and for a tensor that does not fit.
    """
    needs = {"weights": dtype.itemsize * inspect(make, source, rename).parameters}
    ensure_room(device, needs, "choose another device, or close what else is on it")
    return make(Weights(source, device, dtype, rename), device), needs["weights"]
