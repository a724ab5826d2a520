"""A talker as a stage of the farm: tasks in, codes out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from speechmill.models.common.engine.engine import Engine
from speechmill.models.common.engine.model import Codes, Request
from speechmill.models.common.memory import Needs
from speechmill.models.stage import Chunk, Emission, Resume, SlotFailed, StageTask

LIVE_FRAMES = 4
BULK_FRAMES = 25
"""Frames in one piece of the log while somebody listens, and when nobody does."""


@dataclass(slots=True)
class _Slot:
    piece: int
    """Frames in each emission."""
    left: int
    """Frames that may still be made."""
    waiting: list[Sequence[int]] = field(default_factory=list)
    """Frames made and not yet emitted."""


class TalkerStage:
    """Emits codes u16le [frames, codes of a frame]. Resumes by replay: the log is all that a successor needs."""

    def __init__(
        self, engine: Engine, plan: Callable[[StageTask], Request], warm_task: StageTask, memory: Needs
    ) -> None:
        """`plan` turns a task into a request; it raises ValueError, in a line for the client, for one it cannot."""
        self.engine = engine
        self.memory = memory
        self._plan = plan
        self._warm_task = warm_task
        self._slots: dict[int, _Slot] = {}

    def warm(self) -> None:
        self.engine.capture()
        self.open(0, self._warm_task, Resume())
        while not any(emission.final for emission in self.step([0])):
            pass
        self.close(0)

    def open(self, slot: int, task: StageTask, resume: Resume) -> None:
        try:
            request = self._plan(task)
            self.engine.open(slot, request, read_codes(resume.output, self.engine.model.codes))
        except ValueError as error:
            raise SlotFailed(slot, str(error), "invalid_value") from None
        piece = LIVE_FRAMES if task.live else BULK_FRAMES
        self._slots[slot] = _Slot(piece, request.max_frames - resume.end)

    def feed(self, slot: int, chunk: Chunk) -> None:
        raise NotImplementedError("a talker takes its text from the task")

    def runnable(self, slot: int) -> bool:
        return True

    def step(self, slots: Sequence[int]) -> list[Emission]:
        spent = [slot for slot in slots if self._slots[slot].left <= 0]
        made = self.engine.step([slot for slot in slots if slot not in spent])
        emissions = [self._take(frame.slot, frame.codes) for frame in made]
        return [*(self._end(slot, "length") for slot in spent), *(each for each in emissions if each is not None)]

    def _take(self, slot: int, codes: Sequence[int]) -> Emission | None:
        """What one more frame of a slot makes ready; no codes mean that the model is done."""
        held = self._slots[slot]
        if not codes:
            return self._end(slot, "stop")
        held.waiting.append(codes)
        held.left -= 1
        if not held.left:
            return self._end(slot, "length")
        return self._emission(slot) if len(held.waiting) >= held.piece else None

    def _end(self, slot: int, reason: str) -> Emission:
        return self._emission(slot, final=True, reason=reason)

    def _emission(self, slot: int, final: bool = False, reason: str = "") -> Emission:
        held = self._slots[slot]
        frames, held.waiting = held.waiting, []
        payload = np.array(frames, "<u2").tobytes()
        trailer = {"finish_reason": reason} if final else {}
        return Emission(slot, frames=len(frames), payload=payload, final=final, trailer=trailer)

    def close(self, slot: int) -> None:
        self.engine.close(slot)
        self._slots.pop(slot, None)


def read_codes(payload: bytes, codes: int) -> Codes:
    """A log's u16le payload → [frames, codes of a frame]."""
    return np.frombuffer(payload, "<u2").reshape(-1, codes).astype(np.uint16)
