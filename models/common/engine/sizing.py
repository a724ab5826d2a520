"""How much memory keys and values take."""

import torch

from speechmill.models.common.memory import ensure_room
from speechmill.models.common.paged_kv import KvShape

CPU_KV_BYTES = 2 << 30
GPU_KV_SHARE = 0.6
"""Of the memory that is free once the weights are loaded; the rest is for steps, and for stages beside this one."""
LEAST_POSITIONS = 4096
"""Fewer for a sequence are not worth a start."""


def affordable_pages(shape: KvShape, page: int, slots: int, positions: int) -> int:
    """How many of `page` positions: what memory allows and the slots can use.

    `positions`: of the longest sequence. Raises CannotLoad where the device has no room.
    """
    each = 2 * shape.layers * page * shape.kv_heads * shape.size * shape.dtype.itemsize
    one = -(-positions // page)
    least = min(one, -(-LEAST_POSITIONS // page))
    ensure_room(shape.device, {"keys and values of one sequence": each * least}, "close what else is on it")
    room = CPU_KV_BYTES
    if shape.device.type == "cuda":
        room = int(torch.cuda.mem_get_info(shape.device)[0] * GPU_KV_SHARE)
    return min(max(room // each, least), slots * one)
