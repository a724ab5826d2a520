"""Attention of one query for each sequence over paged keys and values: a Triton kernel, and who uses it.

The work on a sequence is split along its length, block by block in turn, so that a few sequences of any length keep a
whole GPU busy. Each program takes all query heads that share a kv head and reads their keys and values once; a second
kernel joins the splits.
`SPEECHMILL_FISH_KVCACHE_ATTN` switches it: `auto` (where there are a GPU and Triton), `off` or `0`, `required`.
"""

import os
from functools import cache

import torch
from torch import Tensor

from speechmill.models.common.device import on_device
from speechmill.models.stage import CannotLoad

SWITCH = "SPEECHMILL_FISH_KVCACHE_ATTN"
MODES = ("auto", "off", "0", "required")
_failure: str | None = None
try:
    from speechmill.models.common import decode_kernel
except ImportError as error:
    _failure = str(error)


def is_available() -> bool:
    """Whether the kernel could be loaded, and ran where it was tried."""
    return _failure is None


def load_error() -> str | None:
    """Why it could not; None if it was."""
    return _failure


def wanted(device: torch.device) -> bool:
    """Whether decoding on `device` uses the kernel, which is tried there once.

    Raises CannotLoad for an unknown switch, and where the kernel is required and does not run.
    """
    mode = os.environ.get(SWITCH, "auto")
    if mode not in MODES:
        raise CannotLoad(f"{SWITCH} is {mode!r}; known: {', '.join(MODES)}")
    if mode in ("off", "0"):
        return False
    can_run = device.type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1"
    runs = is_available() and can_run and _runs(device)
    if mode == "required" and not runs:
        raise CannotLoad(f"{SWITCH}=required, but {_failure or f'{device} cannot run it'}")
    return runs


@cache
def _runs(device: torch.device) -> bool:
    """Triton compiles at the first launch, for which it needs a C compiler and much else."""
    global _failure
    rows = torch.zeros(1, 1, 16, device=device)
    index = torch.ones(1, dtype=torch.int32, device=device)
    try:
        decode(rows, rows[None], rows[None], torch.zeros_like(index)[None], index)
    except Exception as error:  # whatever it is, the kernel is of no use here
        _failure = f"{type(error).__name__}: {error}"
        return False
    return True


def decode(query: Tensor, keys: Tensor, values: Tensor, tables: Tensor, lengths: Tensor, splits: int = 0) -> Tensor:
    """query [n, heads, size], keys and values [pages, page, kv heads, size], tables int32 [n, pages of a sequence],
    lengths int32 [n], the current position included → [n, heads, size]; zeros for a length of 0. Scale 1/√size.

    `splits`: along the length; 0 for as many as fill the device. For fixed `n` and splits a row's result is fixed.
    """
    with on_device(query.device):
        made: Tensor = decode_kernel.decode(query, keys, values, tables, lengths, splits)
    return made
