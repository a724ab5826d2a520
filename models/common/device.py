"""Where a stage computes."""

import torch

from speechmill.models.stage import CannotLoad


def usable_device(name: str) -> torch.device:
    """The device of that name. Raises CannotLoad, in one line, where there is none."""
    try:
        device = torch.device(name)
    except RuntimeError:
        raise CannotLoad(f"device {name!r} is none of cpu, cuda, cuda:N") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise CannotLoad(f'device {name!r} is not there; the stage\'s setting device = "cpu" does without')
    return device
