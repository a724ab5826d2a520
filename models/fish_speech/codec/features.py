"""What `encode` makes of a recording: the layout of its codes in the store, read by whoever builds a prompt."""

import struct

import numpy as np
from numpy.typing import NDArray

VERSION = 1
_HEADER = struct.Struct("<BxHI")


def pack(codes: NDArray[np.integer]) -> bytes:
    """Codes [codebooks, frames] → version (u8), a zero byte, codebooks (u16), frames (u32), codes u16le row by row."""
    return _HEADER.pack(VERSION, *codes.shape) + codes.astype("<u2").tobytes()


def unpack(payload: bytes) -> NDArray[np.uint16]:
    """Codes [codebooks, frames], row 0 the semantic ones.

    Raises ValueError for another version or a payload of the wrong size.
    """
    if len(payload) < _HEADER.size or payload[0] != VERSION:
        raise ValueError(f"not codes of fish_speech version {VERSION}")
    _, codebooks, frames = _HEADER.unpack_from(payload)
    if len(payload) != _HEADER.size + 2 * codebooks * frames:
        raise ValueError("codes of fish_speech have the wrong size")
    return np.frombuffer(payload, "<u2", offset=_HEADER.size).reshape(codebooks, frames).astype(np.uint16)
