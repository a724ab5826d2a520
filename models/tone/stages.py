"""Any model's stages without the model: exact lengths, rates and chunks, a tone for a voice, and faults on demand.

Each stage knows from the task alone what its whole log will be; its input only says how far it may go. Of an open text
the input says both.
"""

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain, repeat

import numpy as np

from speechmill.models.card import ModelCard
from speechmill.models.stage import Chunk, Emission, Mark, Resume, SlotFailed, Stage, StageOptions, StageTask
from speechmill.models.tone.sound import Tone, first_frames, words

CODES_S = 0.25
"""Audio in one piece of codes while somebody listens."""
MIDWAY = ("mid_stream", "worker_crash")
"""Faults that come when some audio has been heard, in the first segment."""
FAULT_S = 0.25
"""Audio that is heard before them."""
SETTLE_S = 0.75
"""From the last piece before them: time for it to reach the listener."""
CRASHED = 70
FEATURES = 4


def load(
    card: ModelCard, name: str, options: StageOptions, pace: float = 0.0, cost: tuple[float, float] = (0.0, 0.0)
) -> Stage:
    """One stage of any card. Raises KeyError for no such stage.

    `pace`: seconds that a second of tone takes to make at least. `cost`: seconds that a step takes, for itself and for
    each of its slots.
    """
    card.stage(name)
    return FeatureStage() if name == "encode" else ToneStage(card, name, options, pace, cost)


@dataclass(slots=True)
class _Slot:
    """All counts are units of the stage's own log, except `fed`."""

    task: StageTask
    total: int
    """Length of the whole log, as far as it is known."""
    made: int
    marks: tuple[Mark, ...]
    tone: Tone
    sizes: Iterator[int]
    size: int
    """Of the next piece."""
    pace: float
    start: int
    """Where this attempt began."""
    began: float
    fed: int = 0
    """Frames of the input log."""
    chars: int = 0
    """Of an open text, as far as the first stage has it."""
    ended: bool = False
    """All of the input is there."""
    fault: str = ""
    fault_at: int = 0
    """Where the fault comes; meaningless without one."""
    fault_due: float = 0.0


class ToneStage:
    """One stepper for every stage that a card may have."""

    def __init__(
        self, card: ModelCard, name: str, options: StageOptions, pace: float, cost: tuple[float, float]
    ) -> None:
        self._card = card
        self._cost = cost
        self._options = options
        self._pace = pace
        self._own = card.stage(name)
        at = card.stages.index(self._own)
        self._is_first, self._is_last = at == 0, at == len(card.stages) - 1
        self._scale = self._own.rate / card.stages[max(at - 1, 0)].rate
        """Own units for each frame of the input."""
        self._slots: dict[int, _Slot] = {}

    def warm(self) -> None:
        """Nothing to warm."""

    def open(self, slot: int, task: StageTask, resume: Resume) -> None:
        fault = str(task.params.get("test_fault", ""))
        total = 0 if task.open else self._length(slot, task, len(task.text))
        sizes = self._sizes(task.live)
        opened = self._slots[slot] = _Slot(
            task=task,
            total=total,
            made=resume.end,
            marks=words(task.text, total) if self._card.parameters.word_timestamps else (),
            tone=Tone(task, self._own.rate),
            sizes=sizes,
            size=next(sizes),
            pace=(1.0 if fault == "slow" else self._pace) if self._is_last else 0.0,
            start=resume.end,
            began=time.monotonic(),
            ended=self._is_first and not task.open,
        )
        # a worker that died of a task that others have begun before would die of it for ever
        survived = fault == "worker_crash" and resume.end > 0
        if self._is_last and task.segment == 0 and fault in MIDWAY and not survived:
            opened.fault, opened.fault_at = fault, round(FAULT_S * self._own.rate)
            if not task.open:
                opened.fault_at = min(opened.fault_at, total - 1)

    def _length(self, slot: int, task: StageTask, chars: int, whole: bool = True) -> int:
        """Of the own log, for so much text. Raises SlotFailed where the budget is too small for it."""
        frames = first_frames(self._card, task, chars, whole)
        budget = task.params.get("max_new_tokens")
        if isinstance(budget, int) and budget < frames:
            message = f"the text takes {frames} tokens and max_new_tokens allows {budget}"
            raise SlotFailed(slot, message, "incomplete_generation")
        silent = task.params.get("test_fault") == "zero_audio"
        return 0 if silent else round(frames * self._own.rate / self._card.stages[0].rate)

    def _sizes(self, live: bool) -> Iterator[int]:
        """Pieces as the options want them; a stage of codes passes on what it gets."""
        everything = 1 << 62
        if self._is_first:
            return repeat(max(round(CODES_S * self._own.rate), 1) if live else everything)
        if not self._is_last:
            return repeat(everything)
        frames = self._options.live_chunks if live else ()
        frames = frames or (self._options.bulk_chunk or everything,)
        pieces = [round(count * self._scale) for count in frames]
        return chain(pieces, repeat(pieces[-1]))

    def feed(self, slot: int, chunk: Chunk) -> None:
        held = self._slots[slot]
        held.fed, held.ended = chunk.end, chunk.final
        if not held.task.open:
            return
        if self._is_first:
            held.chars += len(chunk.payload.decode())
            held.total = self._length(slot, held.task, held.chars, chunk.final)
        else:
            held.total = round(held.fed * self._scale)

    def runnable(self, slot: int) -> bool:
        held = self._slots[slot]
        return self._has_work(held) and self._due(held) <= time.monotonic()

    def due_s(self) -> float:
        """Seconds until the clock alone makes some slot runnable; infinite when it will not."""
        now = time.monotonic()
        waiting = (self._due(held) - now for held in self._slots.values() if self._has_work(held))
        return min(waiting, default=float("inf"))

    def _has_work(self, held: _Slot) -> bool:
        return held.ended or self._target(held) > held.made

    def _target(self, held: _Slot) -> int:
        """Where the next piece ends."""
        there = held.total if held.ended or self._is_first else min(round(held.fed * self._scale), held.total)
        if held.fault and held.made < held.fault_at:
            there = min(there, held.fault_at)
        return max(min(there, held.made + held.size), held.made)

    def _due(self, held: _Slot) -> float:
        if held.fault and held.made >= held.fault_at:
            return held.fault_due
        return held.began + held.pace * (self._target(held) - held.start) / self._own.rate

    def step(self, slots: Sequence[int]) -> list[Emission]:
        if any(self._cost):
            time.sleep(self._cost[0] + self._cost[1] * len(slots))
        return [self._next(slot, self._slots[slot]) for slot in slots]

    def _next(self, slot: int, held: _Slot) -> Emission:
        if held.fault and held.made >= held.fault_at:
            if held.fault == "worker_crash":
                os._exit(CRASHED)
            raise SlotFailed(slot, "the model failed in the middle, as it was asked to")
        start, held.made = held.made, self._target(held)
        held.size = next(held.sizes)
        held.fault_due = time.monotonic() + SETTLE_S
        return Emission(
            slot,
            frames=held.made - start,
            payload=self._payload(held, start),
            marks=tuple(mark for mark in held.marks if start <= mark.start < held.made),
            final=held.ended and held.made >= held.total,
        )

    def _payload(self, held: _Slot, start: int) -> bytes:
        if self._own.unit == "pcm":
            return held.tone.samples(start, held.made, self._card.channels)
        return np.arange(start, held.made, dtype="<u4").tobytes()

    def close(self, slot: int) -> None:
        self._slots.pop(slot, None)


class FeatureStage:
    """Stands for `encode`: a few numbers that only the recording decides, as one piece."""

    def __init__(self) -> None:
        self._rest: dict[int, bytes] = {}
        """What the log does not hold yet."""

    def warm(self) -> None:
        """Nothing to warm."""

    def open(self, slot: int, task: StageTask, resume: Resume) -> None:
        self._rest[slot] = _features(task.assets.get("clip", b""))[4 * resume.end :]

    def feed(self, slot: int, chunk: Chunk) -> None:
        raise NotImplementedError("the recording comes with the task")

    def runnable(self, slot: int) -> bool:
        return True

    def step(self, slots: Sequence[int]) -> list[Emission]:
        return [Emission(slot, len(self._rest[slot]) // 4, self._rest[slot], final=True) for slot in slots]

    def close(self, slot: int) -> None:
        self._rest.pop(slot, None)


def _features(clip: bytes) -> bytes:
    digest = np.frombuffer(blake2b(clip, digest_size=4 * FEATURES).digest(), "<u4")
    return (digest / 2**32).astype("<f4").tobytes()
