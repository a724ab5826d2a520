"""A talker as a stage of the farm: tasks in, codes out."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from speechmill.models.common.draws import stream_key
from speechmill.models.common.engine.engine import Engine
from speechmill.models.common.engine.model import Codes, Request
from speechmill.models.stage import Chunk, Emission, Resume, SlotFailed, StageTask

LIVE_FRAMES = 4
BULK_FRAMES = 25
"""Frames in one piece of the log while somebody listens, unless the card says otherwise, and when nobody does."""
_AGAIN = b"again"
"""Cursor of a second try."""


class OpenPlan(Protocol):
    """How a text that is still being written becomes a request."""

    def feed(self, text: str, final: bool) -> Request | None:
        """More of the text. The request as far as it is known by now, which only ever gets more on its second track and
        then another budget; None as long as there is too little to begin with.

        Raises ValueError, in a line for the client, for a text that cannot be spoken.
        """


@dataclass(frozen=True, slots=True)
class _Unbegun:
    """A slot whose text is too short yet."""

    task: StageTask
    resume: Resume


@dataclass(slots=True)
class _Slot:
    request: Request
    pieces: deque[int]
    """Frames in each emission to come; the last number repeats."""
    left: int
    """Frames that may still be made."""
    again: bool
    """This is the second try."""
    fresh: bool
    """Nothing of it is in the log: it may still be tried once more."""
    waiting: list[Sequence[int]] = field(default_factory=list)
    """Frames made and not yet emitted."""
    first: list[Sequence[int]] = field(default_factory=list)
    """What came of the first try."""


class TalkerStage:
    """Emits codes u16le [frames, codes of a frame]. Resumes by replay: the log is all that a successor needs.

    A take that says nothing, or does not come to an end where one is expected, is tried once more with other draws: the
    same whenever, and wherever, it is tried. That is possible as long as nothing of it is in the log, so what nobody
    listens to and is to end is logged when it has. The cursor of a log says that it is of the second try.
    """

    def __init__(
        self,
        engine: Engine,
        plan: Callable[[StageTask], Request],
        warm_task: StageTask,
        weights_bytes: int,
        live: Sequence[int] = (),
        plan_open: Callable[[StageTask], OpenPlan] | None = None,
    ) -> None:
        """`plan` turns a task into a request; it raises ValueError, in a line for the client, for one it cannot.

        `live`: frames in the pieces that a listener gets; the last number repeats. `plan_open`: of a family that speaks
        texts which are still being written.
        """
        self.engine = engine
        self.memory = {"weights": weights_bytes, "keys and values": engine.cache_bytes}
        self._plan = plan
        self._warm_task = warm_task
        self._live = live or (LIVE_FRAMES,)
        self._plan_open = plan_open
        self._slots: dict[int, _Slot] = {}
        self._unbegun: dict[int, _Unbegun] = {}
        self._texts: dict[int, OpenPlan] = {}

    def warm(self) -> None:
        self.engine.capture()
        self.open(0, self._warm_task, Resume())
        while not any(emission.final for emission in self.step([0])):
            pass
        self.close(0)

    def open(self, slot: int, task: StageTask, resume: Resume) -> None:
        with _refusing(slot):
            if task.open:
                assert self._plan_open is not None, "the card says that texts are complete"
                self._texts[slot], self._unbegun[slot] = self._plan_open(task), _Unbegun(task, resume)
            else:
                self._begin(slot, self._plan(task), task, resume)

    def _begin(self, slot: int, request: Request, task: StageTask, resume: Resume) -> None:
        again = bool(resume.cursor)
        self.engine.open(slot, _attempt(request, again), read_codes(resume.output, self.engine.model.codes))
        bulk = request.max_frames if request.end_expected and not task.open else BULK_FRAMES
        pieces = deque(self._live if task.live else [bulk])
        self._slots[slot] = _Slot(request, pieces, request.max_frames - resume.end, again, fresh=not resume.end)

    def feed(self, slot: int, chunk: Chunk) -> None:
        """More of an open text."""
        with _refusing(slot):
            request = self._texts[slot].feed(chunk.payload.decode(), chunk.final)
            if request is None:
                return
            if unbegun := self._unbegun.pop(slot, None):
                self._begin(slot, request, unbegun.task, unbegun.resume)
            else:
                self._extend(slot, request)

    def _extend(self, slot: int, request: Request) -> None:
        held = self._slots[slot]
        self.engine.extend(slot, request.beside[len(held.request.beside) :], request.complete)
        held.left += request.max_frames - held.request.max_frames
        held.request = request

    def runnable(self, slot: int) -> bool:
        held = self._slots.get(slot)
        return held is not None and (held.left <= 0 or not self.engine.waits(slot))

    def step(self, slots: Sequence[int]) -> list[Emission]:
        spent = [slot for slot in slots if self._slots[slot].left <= 0]
        made = self.engine.step([slot for slot in slots if slot not in spent])
        emissions = [self._take(frame.slot, frame.codes) for frame in made]
        return [*(self._emission(slot, "length") for slot in spent), *(each for each in emissions if each is not None)]

    def _take(self, slot: int, codes: Sequence[int]) -> Emission | None:
        """What one more frame of a slot makes ready; no codes mean that the model is done."""
        held = self._slots[slot]
        if not codes:
            return self._end(slot, "stop", lost=not held.waiting)
        held.waiting.append(codes)
        held.left -= 1
        if not held.left:
            return self._end(slot, "length", lost=held.request.end_expected)
        if len(held.waiting) < held.pieces[0] and not self.engine.waits(slot):
            return None
        if len(held.pieces) > 1:
            held.pieces.popleft()
        return self._emission(slot)

    def _end(self, slot: int, reason: str, lost: bool) -> Emission | None:
        """`lost`: this is no way to end."""
        held = self._slots[slot]
        if not (lost and held.fresh):
            return self._emission(slot, reason)
        if not held.again:
            self._try_again(slot)
            return None
        if held.first:  # no try came to its end: a listener would have heard the first
            held.waiting, held.again, reason = held.first, False, "length"
        return self._emission(slot, reason)

    def _try_again(self, slot: int) -> None:
        held = self._slots[slot]
        self.engine.close(slot)
        self.engine.open(slot, _attempt(held.request, True), read_codes(b"", self.engine.model.codes))
        self._slots[slot] = replace(held, left=held.request.max_frames, again=True, waiting=[], first=held.waiting)

    def _emission(self, slot: int, reason: str = "") -> Emission:
        """The frames that wait; with a reason, the last ones."""
        held = self._slots[slot]
        frames, held.waiting = held.waiting, []
        held.fresh = False
        return Emission(
            slot,
            frames=len(frames),
            payload=np.array(frames, "<u2").tobytes(),
            cursor=_AGAIN if held.again else b"",
            final=bool(reason),
            trailer={"finish_reason": reason} if reason else {},
        )

    def close(self, slot: int) -> None:
        self.engine.close(slot)
        for held in (self._slots, self._unbegun, self._texts):
            held.pop(slot, None)


@contextmanager
def _refusing(slot: int) -> Iterator[None]:
    """What cannot be spoken is its slot's own fault."""
    try:
        yield
    except ValueError as error:
        raise SlotFailed(slot, str(error), "invalid_value") from None


def _attempt(request: Request, again: bool) -> Request:
    """The request itself, or the same with draws of its own."""
    return replace(request, key=stream_key(request.key, 1)) if again else request


def read_codes(payload: bytes, codes: int) -> Codes:
    """A log's u16le payload → [frames, codes of a frame]."""
    return np.frombuffer(payload, "<u2").reshape(-1, codes).astype(np.uint16)
