"""The contract between a model's stages and the loop that drives them.

A stage is a stepper: it holds slots, is fed chunks of its input log and emits chunks for its own.
It never blocks on I/O, never sees Redis and keeps state only in its slots.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class StageOptions:
    """How one stage runs in one process: the card's values, overridden by the settings."""

    slots: int
    """Places in the running batch."""
    device: str = "cpu"
    threads: int = 1
    """CPU threads that one step may use."""
    live_chunks: tuple[int, ...] = ()
    """Chunk sizes in frames of the stage's input, or of what a first stage makes, while somebody listens; the last one
    repeats.
    """
    bulk_chunk: int = 0
    """Chunk size when nobody listens; 0 means everything that is there."""
    checkpoint: Path | None = None
    """Folder of the weights; None where the family brings its own."""

    @property
    def folder(self) -> Path:
        """The checkpoint, of a family that needs one. Raises CannotLoad where there is none."""
        if self.checkpoint is None:
            raise CannotLoad("the model speaks from a checkpoint only")
        return self.checkpoint


@dataclass(frozen=True, slots=True)
class StageTask:
    """What one slot is asked to speak: one segment of one take of a job."""

    job: str
    take: int
    segment: int
    text: str
    voice: str
    seed: int
    """Key of every random draw, together with take, segment, frame and draw index."""
    params: Mapping[str, object] = field(default_factory=dict)
    """Validated request parameters that the card declares, such as `speed`; for `encode` the `mode`."""
    assets: Mapping[str, bytes] = field(default_factory=dict)
    """What a reference brings, by name: `clip`, a WAV of mono float32, or `features`, what `encode` made of it."""
    live: bool = False
    """Somebody listens while it is made: small first chunks."""
    history: Sequence[tuple[str, bytes]] = ()
    """Of a model whose segments are chained: texts of the segments just before this one, and what their first stage
    logged. The oldest comes first; none of it must be there.
    """
    open: bool = False
    """The text is still being written, and `text` is empty. It comes to the first stage as its input log: UTF-8,
    counted in bytes, whole characters in each chunk. Only models whose card says `incremental` get such tasks.
    """


@dataclass(frozen=True, slots=True)
class Resume:
    """Where the stage's own log stands. A fresh task has end 0 and no output."""

    end: int = 0
    """Frames or samples already in the log; the next emission starts here."""
    output: bytes = b""
    """What the log holds, for stages whose card says `replay`; empty otherwise."""
    cursor: bytes = b""
    """The cursor given with the last emission."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A word and when it is spoken, in units of the log that carries it (frames or samples)."""

    word: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of an input log, in order. `end - start` counts the log's units, whatever the payload's size."""

    start: int
    end: int
    payload: bytes = b""
    marks: tuple[Mark, ...] = ()
    final: bool = False
    """Nothing follows. The chunk itself may be empty."""
    trailer: Mapping[str, object] = field(default_factory=dict)
    """What the log's end says of all of it; only with `final`."""


@dataclass(frozen=True, slots=True)
class Emission:
    """A piece for the slot's own log, or its end, or its failure."""

    slot: int
    frames: int = 0
    """Units of the own log that the payload covers."""
    payload: bytes = b""
    marks: tuple[Mark, ...] = ()
    cursor: bytes = b""
    """Opaque state that a successor gets back in `Resume.cursor`."""
    final: bool = False
    """Nothing follows: the slot's work is done."""
    trailer: Mapping[str, object] = field(default_factory=dict)
    """Facts about the whole log, stored with its end; only with `final`. What the input's end says goes along, so that
    `finish_reason` (`stop`, or `length` where a limit came before the end) reaches who hears the job.
    """


class CannotLoad(ValueError):
    """A stage cannot be loaded as it is configured; the text is one line that says why."""


class NoDevice(CannotLoad):
    """This machine has no such device. How to do without is the caller's to say."""


class CheckpointError(CannotLoad):
    """A checkpoint cannot be used; the text is one line that names the file."""


class SlotFailed(Exception):
    """One slot cannot go on; its neighbours can. The text is shown to the client.

    The code is `generation_failed`, `invalid_value` where the text itself is at fault, or `incomplete_generation` where
    the caller's budget is.
    """

    def __init__(self, slot: int, message: str, code: str = "generation_failed") -> None:
        super().__init__(message)
        self.slot = slot
        self.code = code


class Stage(Protocol):
    """A stepper over slots. `load(name, options)` in a family's `stages.py` makes one, weights in place.

    One whose slots become runnable by the clock alone also has `due_s()`: seconds until the next of them does. One that
    waits for more input than it needs has `hurry(slot)`: somebody runs dry, the next piece is made of what is there.
    One that takes much memory has `memory`: bytes by what they are for.
    """

    def warm(self) -> None:
        """Run every code path once, before the first task, so that no task pays for it."""

    def open(self, slot: int, task: StageTask, resume: Resume) -> None:
        """Start or continue `task` in a free slot. Raises SlotFailed for input that the model cannot speak."""

    def feed(self, slot: int, chunk: Chunk) -> None:
        """Give the slot the next chunk of its input log; chunks come in order and without holes, from 0.

        What a first stage makes of an open text depends on the text alone, never on how it was cut or when it came: a
        successor reads it again, in other pieces. Raises SlotFailed for text that the model cannot speak.
        """

    def runnable(self, slot: int) -> bool:
        """Whether a step would bring the slot on; one that waits for input, or for more of an open text, says no."""

    def step(self, slots: Sequence[int]) -> list[Emission]:
        """One batched step over runnable slots. Raises SlotFailed when one slot alone is at fault."""

    def close(self, slot: int) -> None:
        """Free the slot, finished or not."""
