"""What a model derives from a recording, as the farm's stage `encode`: once for all who use it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from typing import Protocol

import numpy as np
import soundfile
import torch
from torch import Tensor

from speechmill.models.common.carry import Streams
from speechmill.models.common.codec.loading import STEP_FRAMES
from speechmill.models.common.memory import Needs
from speechmill.models.stage import Chunk, Emission, Resume, SlotFailed, StageTask

_WARM_HZ = 24_000


class Encoder(Protocol):
    """Samples of several streams, some frames at a time → their codes. Streams are begun and ended with `streams`."""

    device: torch.device
    frame_samples: int
    streams: Streams

    def __call__(self, streams: Sequence[int], samples: Sequence[Tensor]) -> list[Tensor]:
        """The next samples of each stream, float32 [n] → codes int64 [ceil(n / frame_samples), codebooks].

        Only a stream's last piece may end within a frame.
        """


@dataclass(frozen=True, slots=True)
class Sound:
    """A recording as it was stored."""

    samples: Tensor
    """Mono float32 [n], n at least 1."""
    rate_hz: int


@dataclass(frozen=True, slots=True)
class Plan:
    """How one recording becomes features."""

    samples: Tensor
    """What the codec reads of it, at its own rate; nothing where only the sound of it matters."""
    pack: Callable[[Tensor], bytes]
    """Codes int64 [frames, codebooks] → the features."""


@dataclass(slots=True)
class _Recording:
    stream: int
    rest: Tensor
    """What is not encoded yet."""
    pack: Callable[[Tensor], bytes] | None
    """None where the log holds the features already."""
    codes: list[Tensor] = field(default_factory=list)
    """[frames, codebooks] each."""


class EncodeStage:
    """Takes a recording in blocks, so that long ones hold up nobody; the features come out in one piece at its end."""

    def __init__(
        self, encoder: Encoder, memory: Needs, plan: Callable[[StageTask, Sound], Plan], warm_mode: str = ""
    ) -> None:
        """`plan` raises ValueError, in a line for the client, for a recording that the model cannot use."""
        self.memory = memory
        self._encoder, self._plan, self._warm_mode = encoder, plan, warm_mode
        self._block = STEP_FRAMES[encoder.device.type]
        self._slots: dict[int, _Recording] = {}

    def warm(self) -> None:
        clip = BytesIO()
        soundfile.write(clip, np.zeros(_WARM_HZ), _WARM_HZ, format="WAV")  # a second suits every encoder
        params, assets = {"mode": self._warm_mode}, {"clip": clip.getvalue()}
        self.open(-1, StageTask("warm", 0, 0, "", "", 0, params, assets), Resume())
        while not self.step([-1]):
            pass
        self.close(-1)

    def open(self, slot: int, task: StageTask, resume: Resume) -> None:
        """Nothing is left to do for one that is resumed: its log gets everything in one piece."""
        if resume.end:
            self._slots[slot] = _Recording(self._encoder.streams.open(), torch.empty(0), None)
            return
        try:
            plan = self._plan(task, read_sound(task.assets.get("clip", b"")))
        except ValueError as error:
            raise SlotFailed(slot, str(error), "invalid_value") from None
        self._slots[slot] = _Recording(self._encoder.streams.open(), plan.samples, plan.pack)

    def feed(self, slot: int, chunk: Chunk) -> None:
        raise NotImplementedError("the recording comes with the task")

    def runnable(self, slot: int) -> bool:
        return True

    def step(self, slots: Sequence[int]) -> list[Emission]:
        size = max(1, self._block // len(slots)) * self._encoder.frame_samples
        busy = [recording for recording in map(self._slots.__getitem__, slots) if len(recording.rest)]
        if busy:
            blocks = [recording.rest[:size] for recording in busy]
            for recording, codes in zip(busy, self._encoder([each.stream for each in busy], blocks), strict=True):
                recording.rest = recording.rest[size:]
                recording.codes.append(codes)
        return [_emission(slot, self._slots[slot]) for slot in slots if not len(self._slots[slot].rest)]

    def close(self, slot: int) -> None:
        recording = self._slots.pop(slot, None)
        if recording is not None:
            self._encoder.streams.close(recording.stream)


def read_sound(clip: bytes) -> Sound:
    """A stored recording, its channels averaged. Raises ValueError for one that cannot be read or holds nothing."""
    try:
        samples, rate_hz = soundfile.read(BytesIO(clip), dtype="float32", always_2d=True)
    except soundfile.SoundFileError:
        raise ValueError("the recording cannot be read") from None
    if not len(samples):
        raise ValueError("the recording is empty")
    return Sound(torch.from_numpy(samples.mean(1)), rate_hz)


def _emission(slot: int, recording: _Recording) -> Emission:
    if recording.pack is None:
        return Emission(slot, final=True)
    codes = torch.cat(recording.codes) if recording.codes else torch.empty(0, 0, dtype=torch.int64)
    return Emission(slot, frames=1, payload=recording.pack(codes), final=True)
