"""What a stage keeps in memory, by what it is for, and whether a device has room for it."""

from collections.abc import Mapping
from pathlib import Path

import torch

from speechmill.models.stage import CannotLoad

Needs = Mapping[str, int]
"""Bytes."""
_MEMINFO = Path("/proc/meminfo")
_GB = 1e9


def ensure_room(device: torch.device, needs: Needs, advice: str) -> None:
    """Raises CannotLoad, in one line that ends with `advice`, where the device has less than is needed.

    Nothing is known of memory on a CPU beyond Linux, and nothing refused.
    """
    free = _free(device)
    if free is not None and sum(needs.values()) > free:
        listed = ", ".join(f"{size / _GB:.1f} GB for {name}" for name, size in needs.items())
        raise CannotLoad(f"{listed} do not fit into the {free / _GB:.1f} GB that {device} has free: {advice}")


def _free(device: torch.device) -> int | None:
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        lines = dict(line.split(":", 1) for line in _MEMINFO.read_text().splitlines())
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None
