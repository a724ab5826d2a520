"""Random numbers that have names instead of an order, so that neither neighbours nor interruptions change them.

The generator is Squares (Widynski, arXiv:2004.06278): a counter is squared, a key added, halves exchanged, four times.
Here the counter holds frame, draw and entry, and the key stands for seed, take and segment. Integers of 64 bits wrap in
the same way on every device, so all of them draw the same bits.
"""

from hashlib import blake2b
from typing import Protocol

from torch import Tensor

ENTRY_BITS, DRAW_BITS = 20, 8
"""A vocabulary has at most 2**20 entries, a frame at most 256 draws."""
_LOW_32 = 0xFFFFFFFF


class Draws(Protocol):
    """Uniform numbers for a batch of frames, one frame of one sequence in each row."""

    def __call__(self, draw: int, entries: Tensor) -> Tensor:
        """For draw number `draw` of the frame and entries [rows, n] of a vocabulary → float32 [rows, n] in (0, 1)."""


def stream_key(*names: int) -> int:
    """Key of all draws of one sequence, from what it is for: seed, take, segment. A signed integer of 64 bits."""
    digest = blake2b(b"".join(name.to_bytes(16, "little", signed=True) for name in names), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True) | 1


class CounterDraws:
    """Draws of sequences with `keys` int64 [rows] at `frames` int64 [rows]."""

    def __init__(self, keys: Tensor, frames: Tensor) -> None:
        self._keys = keys[:, None]
        self._frames = frames[:, None] << (ENTRY_BITS + DRAW_BITS)

    def __call__(self, draw: int, entries: Tensor) -> Tensor:
        return uniform(self._keys, self._frames + (draw << ENTRY_BITS) + entries)


def uniform(keys: Tensor, counters: Tensor) -> Tensor:
    """The numbers at `counters` of the streams `keys`, int64 → float32 in (0, 1), neither end included."""
    own = counters * keys
    both = own + keys
    mixed = own
    for added in (own, both, own):
        mixed = _swap_halves(mixed * mixed + added)
    bits = (mixed * mixed + both) >> 32 & _LOW_32
    return ((bits >> 9).float() + 0.5) * 2.0**-23


def _swap_halves(words: Tensor) -> Tensor:
    return (words >> 32 & _LOW_32) | (words << 32)
