"""Where a stage computes, and how precisely."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext

import torch

from speechmill.models.stage import CannotLoad, NoDevice, Stage, StageOptions


def usable_device(name: str) -> torch.device:
    """The device of that name. Raises CannotLoad for what names none, NoDevice where it is not there."""
    try:
        device = torch.device(name)
    except RuntimeError:
        raise CannotLoad(f"device {name!r} is none of cpu, cuda, cuda:N") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        count = torch.cuda.device_count()
        raise NoDevice(f"device {name!r} is not there: this machine has {count or 'no'} GPU{'s' if count > 1 else ''}")
    return device


def make_stage(makers: Mapping[str, Callable[[StageOptions], Stage]], name: str, options: StageOptions) -> Stage:
    """One of a family's stages, on the device and with the threads that it is to have.

    Raises KeyError for a stage that there is not, CannotLoad in one line for what the maker cannot make.
    """
    usable_device(options.device)
    torch.set_num_threads(options.threads)
    return makers[name](options)


def talker_dtype(device: torch.device) -> torch.dtype:
    """Of a talker's weights and activations; codecs are in float32 everywhere."""
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def on_device(device: torch.device) -> AbstractContextManager[object]:
    """Launches and graphs go to the current GPU, whatever their tensors lie on: within the block it is this one."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def exact_convolutions(device: torch.device) -> None:
    """On a GPU half of float32's bits would be lost in convolutions, and differently for other numbers of rows."""
    if device.type == "cuda":
        torch.backends.cudnn.allow_tf32 = False
