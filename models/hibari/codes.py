"""What the prosody stage hands to the decoder: payload version 1 of `hibari.prosody`, little-endian arrays."""

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

VERSION = 1
FRAME_RATE = 80
FRAMES_PER_STEP = 2
"""Durations count steps of 25 ms, pitch and energy frames of 12.5 ms."""
_HEADER = struct.Struct("<BxHI")


@dataclass(frozen=True, slots=True)
class Piece:
    """One utterance in the model's terms. A pause has frames but no phonemes."""

    ids: NDArray[np.uint8]
    """[length], zeros at both ends."""
    durations: NDArray[np.uint8]
    """[length], in steps."""
    f0: NDArray[np.float32]
    """[frames], Hz."""
    energy: NDArray[np.float32]
    """[frames]."""

    @property
    def frames(self) -> int:
        return len(self.f0)


def pause(frames: int) -> Piece:
    none, zeros = np.zeros(0, np.uint8), np.zeros(frames, np.float32)
    return Piece(none, none, zeros, zeros)


def encode(piece: Piece) -> bytes:
    """Version (u8), a zero byte, length (u16), frames (u32), ids, durations, f0, energy."""
    header = _HEADER.pack(VERSION, len(piece.ids), piece.frames)
    arrays = piece.ids, piece.durations, piece.f0.astype("<f4"), piece.energy.astype("<f4")
    return header + b"".join(array.tobytes() for array in arrays)


def decode(payload: bytes) -> Piece:
    """Raises ValueError for another version, a payload of the wrong size or durations that do not make its frames."""
    if len(payload) < _HEADER.size or payload[0] != VERSION:
        raise ValueError(f"not a payload of hibari.prosody version {VERSION}")
    _, length, frames = _HEADER.unpack_from(payload)
    if len(payload) != _HEADER.size + 2 * length + 8 * frames:
        raise ValueError("a payload of hibari.prosody has the wrong size")
    symbols = np.frombuffer(payload, np.uint8, 2 * length, _HEADER.size).reshape(2, length)
    if length and int(symbols[1].sum(dtype=np.int64)) * FRAMES_PER_STEP != frames:
        raise ValueError("the durations in a payload of hibari.prosody do not make its frames")
    curves = np.frombuffer(payload, "<f4", 2 * frames, _HEADER.size + 2 * length).reshape(2, frames)
    return Piece(symbols[0], symbols[1], curves[0].astype(np.float32), curves[1].astype(np.float32))
