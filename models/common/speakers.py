"""Speakers between two speakers: vectors that live in a model's input space (qwen3_tts.md §8.3)."""

import numpy as np
from numpy.typing import NDArray

Speaker = NDArray[np.float32]
"""[width], as the model's speaker encoder gives it: not normalised."""
_PARALLEL = 1e-6
"""Radians; between directions so close, both ways are one."""


def lerp(first: Speaker, second: Speaker, weight: float) -> Speaker:
    """On the straight line; `weight` 0 is the first, 1 the second."""
    return ((1 - weight) * first + weight * second).astype(np.float32)


def slerp(first: Speaker, second: Speaker, weight: float) -> Speaker:
    """On the arc; the angle is that of the directions, the lengths go along.

    Shoemake, "Animating rotation with quaternion curves" (1985).
    """
    cosine = float(first @ second) / (float(np.linalg.norm(first)) * float(np.linalg.norm(second)))
    angle = float(np.arccos(np.clip(cosine, -1.0, 1.0)))
    if angle < _PARALLEL or np.pi - angle < _PARALLEL:
        return lerp(first, second, weight)
    parts = (np.sin((1 - weight) * angle) * first + np.sin(weight * angle) * second) / np.sin(angle)
    return np.asarray(parts, np.float32)
