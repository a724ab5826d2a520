"""Attention of one query for each sequence over paged keys and values: a Triton kernel, and who uses it.

The work on a sequence is split along its length, so that a few sequences keep a whole GPU busy. Each program takes all
query heads that share a kv head and reads their keys and values once; a second kernel joins the splits.
`SPEECHMILL_FISH_KVCACHE_ATTN` switches it: `auto` (where there are a GPU and Triton), `off` or `0`, `required`.
"""

import os

import torch
from torch import Tensor

SWITCH = "SPEECHMILL_FISH_KVCACHE_ATTN"
MODES = ("auto", "off", "0", "required")
_failure: str | None = None
try:
    from speechmill.models.common import decode_kernel
except ImportError as error:
    _failure = str(error)


def is_available() -> bool:
    """Whether the kernel could be loaded."""
    return _failure is None


def load_error() -> str | None:
    """Why it could not; None if it was."""
    return _failure


def wanted(device: torch.device) -> bool:
    """Whether decoding on `device` uses the kernel. Raises ValueError for an unknown switch, RuntimeError where the
    kernel is required and there is none.
    """
    mode = os.environ.get(SWITCH, "auto")
    if mode not in MODES:
        raise ValueError(f"{SWITCH} is {mode!r}; known: {', '.join(MODES)}")
    runs = is_available() and (device.type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1")
    if mode == "required" and not runs:
        raise RuntimeError(f"{SWITCH}=required, but {_failure or f'{device} cannot run it'}")
    return mode != "off" and mode != "0" and runs


def decode(query: Tensor, keys: Tensor, values: Tensor, tables: Tensor, lengths: Tensor, splits: int = 0) -> Tensor:
    """query [n, heads, size], keys and values [pages, page, kv heads, size], tables int32 [n, pages of a sequence],
    lengths int32 [n], the current position included → [n, heads, size]; zeros for a length of 0. Scale 1/√size.

    `splits`: along the length; 0 for as many as fill the device. For fixed shapes and splits a row's result is fixed.
    """
    made: Tensor = decode_kernel.decode(query, keys, values, tables, lengths, splits)
    return made
