"""The farm's stage that joins a job's segments into the `out` log: pauses, tempo, sample rate. It writes nothing else.

Filters start fresh at every segment, so a successor makes the open segment again from its first sample and drops
what `out` holds already: the bytes come out the same.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from speechmill.infra.messages import SpeechRequest, finish_reason
from speechmill.models.stage import Chunk, Emission, Mark, Resume, SlotFailed, StageTask
from speechmill.workers.filters import Filters


@dataclass(frozen=True, slots=True, kw_only=True)
class FarmTask(StageTask):
    """What the farm's own stages need besides."""

    request: SpeechRequest
    segments: int
    native_rate: int
    """Of the model's PCM, in Hz."""
    token: str
    """Of the claim: part of the stored object's key."""
    unspeakable: str = ""
    """Of the model's card: what is told when there is nothing to hear at all; "" where that is the model's fault."""


@dataclass(frozen=True, slots=True)
class Joined(Emission):
    """Also tells how many segments are in `out` now."""

    joined: int = 0


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where `out` stands: in which segment, and at which sample that segment began."""

    segment: int = 0
    began: int = 0
    reason: str = "stop"
    """`length` once a segment has ended so."""

    def encode(self) -> bytes:
        return json.dumps([self.segment, self.began, self.reason]).encode()

    @classmethod
    def decode(cls, raw: bytes) -> "Cursor":
        return cls(*json.loads(raw)) if raw else cls()


class _Joint:
    """One job's joining: the open segment's filters and the samples of it that `out` has already."""

    def __init__(self, task: FarmTask, resume: Resume) -> None:
        self.task = task
        self.cursor = Cursor.decode(resume.cursor)
        self.out_end = resume.end
        self.skip = resume.end - self.cursor.began
        self._resumed_at = resume.end
        self.inbox: list[Chunk] = []
        self._filters = self._fresh()
        self._marks: list[Mark] = []
        self._made = 0

    def _fresh(self) -> Filters:
        request = self.task.request
        return Filters(self.task.native_rate, request.sample_rate, request.channels, request.stretch)

    @property
    def complete(self) -> bool:
        """Whether all segments are in `out`; so it is where a predecessor could not say so any more."""
        return self.cursor.segment == self.task.segments

    def end(self) -> Joined:
        return self._emission(b"", self.cursor, final=True)

    def take(self, chunk: Chunk) -> Joined | None:
        """Pass one chunk of the open segment through the filters. Marks are placed in `out`'s samples."""
        filters, frame = self._filters, 2 * self.task.request.channels
        pcm = filters.feed(chunk.payload)
        self._marks += [mark for mark in map(self._place, chunk.marks) if mark.end > self._resumed_at]
        if chunk.final:
            pcm += filters.finish()
            pcm += self._pause() if pcm or self._made else b""
        fresh = pcm[self.skip * frame :]
        self.skip = max(self.skip - len(pcm) // frame, 0)
        self._made += len(pcm) // frame
        if not chunk.final:
            return self._emission(fresh, self.cursor, final=False) if fresh else None
        return self._next_segment(fresh, finish_reason(chunk.trailer))

    def _place(self, mark: Mark) -> Mark:
        began, scale = self.cursor.began, self._filters.scale
        return Mark(mark.word, began + round(mark.start * scale), began + round(mark.end * scale))

    def _pause(self) -> bytes:
        """Silence after a segment that was heard; none after the last."""
        if self.cursor.segment + 1 >= self.task.segments:
            return b""
        request = self.task.request
        return bytes(request.silence_ms * request.sample_rate // 1000 * 2 * request.channels)

    def _next_segment(self, fresh: bytes, reason: str) -> Joined:
        """`reason`: how the segment ended."""
        told = self.cursor.reason if reason == "stop" else reason
        self.cursor = Cursor(self.cursor.segment + 1, self.cursor.began + self._made, told)
        self._filters, self._made = self._fresh(), 0
        return self._emission(fresh, self.cursor, final=self.complete)

    def _emission(self, fresh: bytes, cursor: Cursor, final: bool) -> Joined:
        frames = len(fresh) // (2 * self.task.request.channels)
        self.out_end += frames
        marks = tuple(mark for mark in self._marks if frames and (final or mark.end <= self.out_end))
        self._marks = self._marks[len(marks) :]
        return Joined(
            slot=-1,
            frames=frames,
            payload=fresh,
            marks=marks,
            cursor=cursor.encode(),
            final=final,
            trailer={"frames": self.out_end, "finish_reason": cursor.reason} if final else {},
            joined=cursor.segment,
        )


class Finish:
    """A stepper like any model's. Each segment's log ends with a `final` chunk."""

    def __init__(self) -> None:
        self._joints: dict[int, _Joint] = {}

    def warm(self) -> None:
        """Nothing to warm."""

    def open(self, slot: int, task: StageTask, resume: Resume) -> None:
        assert isinstance(task, FarmTask)
        self._joints[slot] = _Joint(task, resume)

    def feed(self, slot: int, chunk: Chunk) -> None:
        self._joints[slot].inbox.append(chunk)

    def runnable(self, slot: int) -> bool:
        joint = self._joints[slot]
        return bool(joint.inbox) or joint.complete

    def step(self, slots: Sequence[int]) -> list[Emission]:
        emissions: list[Emission] = []
        for slot in slots:
            joint = self._joints[slot]
            if joint.complete:
                emissions.append(replace(joint.end(), slot=slot))
                continue
            chunks, joint.inbox = joint.inbox, []
            fresh = [replace(made, slot=slot) for made in map(joint.take, chunks) if made is not None]
            if fresh and fresh[-1].final and not joint.out_end:
                raise _silent(slot, joint.task.unspeakable)
            emissions += fresh
        return emissions

    def close(self, slot: int) -> None:
        self._joints.pop(slot, None)


def _silent(slot: int, unspeakable: str) -> SlotFailed:
    """All segments are done and nothing can be heard."""
    if unspeakable:
        return SlotFailed(slot, unspeakable, "invalid_value")
    return SlotFailed(slot, "the model made no audio for this text")
