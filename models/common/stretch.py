"""Pitch-preserving tempo change by WSOLA (Verhelst and Roelands, ICASSP 1993), for streams.

Windows of 30 ms overlap by half; each is taken from the place near its nominal position that continues the
previous window best. Positions are absolute, so the result does not depend on how the input is chunked.
"""

import numpy as np
from numpy.typing import NDArray

WINDOW_S = 0.030
SEARCH_S = 0.010


class Stretch:
    """Plays interleaved s16 `tempo` times as fast (0.25..4), at the same pitch."""

    def __init__(self, tempo: float, rate_hz: int, channels: int) -> None:
        self._tempo = tempo
        self._channels = channels
        self._hop = int(rate_hz * WINDOW_S) // 2
        self._reach = int(rate_hz * SEARCH_S)
        self._window = np.sin(np.pi * (np.arange(2 * self._hop) + 0.5) / (2 * self._hop)) ** 2
        self._input = np.zeros((0, channels))
        """Frames from `_start` on."""
        self._start = 0
        self._taken = 0
        self._made: list[NDArray[np.float64]] = []
        self._given = 0
        """Frames that have come out."""
        self._windows = 0
        self._chosen = 0
        """Where the last window was taken."""
        self._overlap = np.zeros((self._hop, channels))
        """Second half of the last window, not yet added to."""

    def feed(self, samples: NDArray[np.int16]) -> NDArray[np.int16]:
        """Frames that are certain by now."""
        fresh = samples.reshape(-1, self._channels).astype(np.float64)
        self._taken += len(fresh)
        self._input = np.concatenate([self._input, fresh])
        self._make(self._taken)
        return self._give(int(self._taken / self._tempo))

    def finish(self) -> NDArray[np.int16]:
        """The rest: afterwards exactly round(frames / tempo) frames have come out."""
        total = round(self._taken / self._tempo)
        silence = np.zeros((2 * self._hop + 2 * self._reach + int(self._hop * self._tempo), self._channels))
        while self._windows * self._hop < total:
            self._input = np.concatenate([self._input, silence])
            self._make(self._start + len(self._input))
        return self._give(total)

    def _give(self, until: int) -> NDArray[np.int16]:
        """What is made, but no more than `until` frames in all: a fast tempo runs ahead of its length."""
        made = np.concatenate(self._made) if self._made else np.zeros((0, self._channels))
        given, kept = np.split(made, [max(until - self._given, 0)])
        self._given += len(given)
        self._made = [kept]
        return np.clip(np.rint(given), -32768, 32767).astype(np.int16).reshape(-1)

    def _make(self, available: int) -> None:
        """Every window whose whole search range lies before `available`."""
        while True:
            nominal = round(self._windows * self._hop * self._tempo)
            if max(nominal + self._reach, self._chosen + self._hop) + 2 * self._hop > available:
                break
            self._made.append(self._next(nominal))
        self._forget(min(self._chosen + self._hop, round(self._windows * self._hop * self._tempo) - self._reach))

    def _next(self, nominal: int) -> NDArray[np.float64]:
        """Add one window; its first half completes `hop` frames."""
        self._chosen = self._best(nominal) if self._windows else 0
        at = self._chosen - self._start
        window = self._input[at : at + 2 * self._hop] * self._window[:, None]
        first = window[: self._hop] if self._windows else self._input[at : at + self._hop]
        done = self._overlap + first
        self._overlap = window[self._hop :]
        self._windows += 1
        return done

    def _best(self, nominal: int) -> int:
        """The place within the search range that correlates best with the last window's continuation."""
        follow = self._chosen + self._hop - self._start
        target = self._input[follow : follow + self._hop].sum(axis=1)
        low = max(nominal - self._reach, self._start)
        region = self._input[low - self._start : nominal + self._reach + self._hop - self._start].sum(axis=1)
        products = np.correlate(region, target, "valid")
        energy = np.convolve(region**2, np.ones(len(target)), "valid")
        return low + int(np.argmax(products / np.sqrt(energy + 1.0)))

    def _forget(self, before: int) -> None:
        drop = max(before - self._start, 0)
        self._input = self._input[drop:]
        self._start += drop
