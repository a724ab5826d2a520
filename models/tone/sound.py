"""What the stand-in says: how long a text takes, when its words come, and the tone itself.

The tone is integer arithmetic on the sample's number, so any cut of it gives the same bits.
"""

from hashlib import blake2b

import numpy as np

from speechmill.models.card import ModelCard
from speechmill.models.stage import Mark, StageTask

S_PER_CHAR = 0.06
SHORTEST_S, LONGEST_S = 0.3, 20.0
LOUDNESS = 0.3
PITCH_HZ = (110.0, 330.0)
SWELL_HZ = (1.5, 3.0)
_CYCLE = 1 << 32
_ENTRIES = 4096
_SINE = np.sin(2 * np.pi * np.arange(_ENTRIES) / _ENTRIES)
_CARRIER = np.rint(32767 * LOUDNESS * _SINE).astype(np.int64)
_SWELL = np.rint(32767 * (0.8 + 0.2 * _SINE)).astype(np.int64)


def first_frames(card: ModelCard, task: StageTask, chars: int, whole: bool = True) -> int:
    """Length of so much text in frames of the model's first stage; of a text that goes on, what is certain of it."""
    asked_s = _number(task, "duration_seconds")
    length_s = asked_s or min(max(S_PER_CHAR * chars, SHORTEST_S if whole else 0.0), LONGEST_S)
    if card.parameters.speed.by == "native":
        length_s /= _number(task, "speed") or 1.0
    return max(round(length_s * card.stages[0].rate), 1 if whole else 0)


def words(text: str, total: int) -> tuple[Mark, ...]:
    """Each word at its share of `total` units, by letters."""
    spoken = text.split()
    edges = np.cumsum([0, *map(len, spoken)]) * total // max(sum(map(len, spoken)), 1)
    return tuple(Mark(word, int(edges[at]), int(edges[at + 1])) for at, word in enumerate(spoken))


class Tone:
    """The voice sets the pitch; seed, take and segment tune it a little and set how it swells."""

    def __init__(self, task: StageTask, rate: float) -> None:
        tuning, swelling = _shares(f"{task.seed}/{task.take}/{task.segment}")
        pitch_hz = _between(PITCH_HZ, _shares(task.voice.casefold())[0]) * (1 + 0.1 * tuning)
        self._pitch = round(pitch_hz / rate * _CYCLE)
        self._swell = round(_between(SWELL_HZ, swelling) / rate * _CYCLE)

    def samples(self, start: int, end: int, channels: int) -> bytes:
        """s16le samples [start, end), the same in every channel."""
        number = np.arange(start, end, dtype=np.int64)
        carrier, swell = _CARRIER[_entry(number * self._pitch)], _SWELL[_entry(number * self._swell)]
        return np.repeat(carrier * swell >> 15, channels).astype("<i2").tobytes()


def _entry(phase: np.ndarray) -> np.ndarray:
    return (phase % _CYCLE) * _ENTRIES // _CYCLE


def _shares(name: str) -> tuple[float, float]:
    """Two numbers from 0 to 1 that only the name decides."""
    digest = blake2b(name.encode(), digest_size=8).digest()
    return int.from_bytes(digest[:4]) / _CYCLE, int.from_bytes(digest[4:]) / _CYCLE


def _between(bounds: tuple[float, float], share: float) -> float:
    return bounds[0] + share * (bounds[1] - bounds[0])


def _number(task: StageTask, name: str) -> float | None:
    value = task.params.get(name)
    return float(value) if isinstance(value, int | float) else None
