"""A reference clip as models take it: decoded, mono, float32."""

import hashlib
import struct
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

_FLOAT = 3
"""WAVE_FORMAT_IEEE_FLOAT."""


@dataclass(frozen=True, eq=False)
class Clip:
    samples: NDArray[np.float32]
    """Mono, nominally within ±1, finite."""
    sample_rate: int
    """In Hz."""

    sha256: str = field(init=False)
    """Names the sound, whatever it was packed in: hexadecimal, over the little-endian samples and the rate."""

    def __post_init__(self) -> None:
        digest = hashlib.sha256(self._payload + struct.pack("<I", self.sample_rate))
        object.__setattr__(self, "sha256", digest.hexdigest())

    @property
    def seconds(self) -> float:
        return len(self.samples) / self.sample_rate

    def wav(self) -> bytes:
        """A WAV of float32 samples; equal clips give equal bytes."""
        size = len(self._payload)
        layout = (_FLOAT, 1, self.sample_rate, self.sample_rate * 4, 4, 32)
        head = b"RIFF" + struct.pack("<I", size + 50) + b"WAVE"
        shape = b"fmt " + struct.pack("<IHHIIHHH", 18, *layout, 0)
        count = b"fact" + struct.pack("<II", 4, len(self.samples))
        return head + shape + count + b"data" + struct.pack("<I", size) + self._payload

    @property
    def _payload(self) -> bytes:
        return self.samples.astype("<f4", copy=False).tobytes()
