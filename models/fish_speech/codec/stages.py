"""The codec's two stages: `codec` (codes → s16le at 44.1 kHz) and `encode` (a recording → its codes)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from math import prod
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
import soundfile
import torch
from torch import Tensor
from torch.nn import functional as fn

from speechmill.models.common.carry import Streams
from speechmill.models.common.checkpoint import Inspection, Reader, Weights
from speechmill.models.common.device import exact_convolutions
from speechmill.models.common.memory import Needs, ensure_room
from speechmill.models.common.pcm import to_s16
from speechmill.models.common.resample import resample
from speechmill.models.fish_speech.codec import features
from speechmill.models.fish_speech.codec.config import CodecConfig, read_config
from speechmill.models.fish_speech.codec.decoder import Decoder
from speechmill.models.fish_speech.codec.encoder import Encoder
from speechmill.models.fish_speech.codec.playback import Playback, advance
from speechmill.models.fish_speech.codec.weights import POSITIONS, open_source, rename
from speechmill.models.stage import Chunk, Emission, Resume, SlotFailed, StageOptions, StageTask

_STEP_FRAMES = {"cpu": 32, "cuda": 256}
"""Codes that one step takes at most, so that it stays within seconds and its activations within some GiB."""
_STEP_BYTES = 6 * 96 * 4
"""Of activations for a sample of a step: some tensors of the last block's channels."""


class Network(Protocol):
    """A half of the codec."""

    streams: Streams


Half = TypeVar("Half", bound=Network)


class CodecStage:
    """Any chunking gives the same samples; a resumed slot makes its stream's state again from the logged codes."""

    def __init__(self, options: StageOptions) -> None:
        """Raises CheckpointError for weights that do not fit."""
        config, self._decoder, self.memory = _read(Decoder, options)
        self._options = options
        self._codebooks = len(config.quantizer.codebooks)
        self._most = _STEP_FRAMES[torch.device(options.device).type]
        self._slots: dict[int, Playback] = {}

    def warm(self) -> None:
        frames = sum(self._options.live_chunks) + 1
        codes = bytes(2 * self._codebooks * frames)
        for live in (True, False):
            self.open(-1, StageTask("warm", 0, 0, "", "", 0, live=live), Resume())
            self.feed(-1, Chunk(0, frames, codes, final=True))
            while not self.step([-1])[0].final:
                pass
            self.close(-1)

    def open(self, slot: int, task: StageTask, resume: Resume) -> None:
        live = task.live and self._options.live_chunks
        chunks = self._options.live_chunks if live else (self._options.bulk_chunk,)
        self._slots[slot] = Playback.begin(self._decoder, chunks, resume.end)

    def feed(self, slot: int, chunk: Chunk) -> None:
        if chunk.end > POSITIONS:
            raise SlotFailed(slot, f"the codec speaks at most {POSITIONS} frames at once")
        codes = np.frombuffer(chunk.payload, "<u2").astype(np.int64).reshape(-1, self._codebooks)
        if len(codes) != chunk.end - chunk.start:
            raise ValueError(f"{len(codes)} frames of codes where the log counts {chunk.end - chunk.start}")
        playback = self._slots[slot]
        playback.feed(chunk.start, torch.from_numpy(codes))
        playback.ended = chunk.final

    def runnable(self, slot: int) -> bool:
        playback = self._slots[slot]
        return playback.ended or playback.next_length(self._decoder.frame_samples) > 0

    def step(self, slots: Sequence[int]) -> list[Emission]:
        playbacks = [self._slots[slot] for slot in slots]
        made = advance(self._decoder, playbacks, self._most)
        emissions = [
            Emission(
                slot, frames=len(samples), payload=to_s16(samples), final=playback.ended and not len(playback.waiting)
            )
            for slot, playback, samples in zip(slots, playbacks, made, strict=True)
        ]
        return [emission for emission in emissions if emission.frames or emission.final]

    def close(self, slot: int) -> None:
        playback = self._slots.pop(slot, None)
        if playback is not None:
            self._decoder.streams.close(playback.stream)


@dataclass(slots=True)
class _Recording:
    stream: int
    samples: Tensor
    """What is not encoded yet, whole frames."""
    codes: list[Tensor] = field(default_factory=list)
    """[frames, codebooks] each."""


class EncodeStage:
    """Takes a recording in blocks, so that long ones hold up nobody; the codes come out as one piece at its end."""

    def __init__(self, options: StageOptions) -> None:
        """Raises CheckpointError for weights that do not fit."""
        config, self._encoder, self.memory = _read(Encoder, options)
        self._sample_rate = config.sample_rate
        self._longest = POSITIONS // prod(config.quantizer.downsample_factor) * config.frame_samples
        self._block = _STEP_FRAMES[torch.device(options.device).type]
        self._slots: dict[int, _Recording] = {}

    def warm(self) -> None:
        stream = self._encoder.streams.open()
        self._encoder([stream], [torch.zeros(self._block * self._encoder.frame_samples)])
        self._encoder.streams.close(stream)

    def open(self, slot: int, task: StageTask, resume: Resume) -> None:
        """Nothing is left to do for one that is resumed: its log gets everything in one piece."""
        samples = torch.empty(0) if resume.end else self._read(slot, task.assets.get("clip", b""))
        self._slots[slot] = _Recording(self._encoder.streams.open(), samples)

    def _read(self, slot: int, clip: bytes) -> Tensor:
        """Mono at the codec's rate, silence up to a whole frame. Raises SlotFailed."""
        try:
            sound, rate = soundfile.read(BytesIO(clip), dtype="float32", always_2d=True)
        except soundfile.SoundFileError:
            raise SlotFailed(slot, "the recording cannot be read", "invalid_value") from None
        samples = resample(torch.from_numpy(sound.mean(1)), rate, self._sample_rate)
        if not 0 < len(samples) <= self._longest:
            longest_s = self._longest // self._sample_rate
            raise SlotFailed(slot, f"the recording is empty or longer than {longest_s} seconds", "invalid_value")
        return fn.pad(samples, (0, -len(samples) % self._encoder.frame_samples))

    def feed(self, slot: int, chunk: Chunk) -> None:
        raise NotImplementedError("the recording comes with the task")

    def runnable(self, slot: int) -> bool:
        return True

    def step(self, slots: Sequence[int]) -> list[Emission]:
        size = max(1, self._block // len(slots)) * self._encoder.frame_samples
        busy = [recording for recording in map(self._slots.__getitem__, slots) if len(recording.samples)]
        if busy:
            blocks = [recording.samples[:size] for recording in busy]
            for recording, codes in zip(busy, self._encoder([each.stream for each in busy], blocks), strict=True):
                recording.samples = recording.samples[size:]
                recording.codes.append(codes)
        return [_emission(slot, self._slots[slot]) for slot in slots if not len(self._slots[slot].samples)]

    def close(self, slot: int) -> None:
        recording = self._slots.pop(slot, None)
        if recording is not None:
            self._encoder.streams.close(recording.stream)


def _emission(slot: int, recording: _Recording) -> Emission:
    if not recording.codes:
        return Emission(slot, final=True)
    codes = torch.cat(recording.codes).T.numpy()
    return Emission(slot, frames=1, payload=features.pack(codes), final=True)


def _read(kind: Callable[[Reader, CodecConfig], Half], options: StageOptions) -> tuple[CodecConfig, Half, Needs]:
    """Half of the checkpoint's codec in float32, whatever it is stored in, and the memory that it takes.

    Raises CheckpointError for weights that do not fit, CannotLoad where there is no room for them.
    """
    device = torch.device(options.device)
    exact_convolutions(device)
    folder = options.checkpoint or Path()
    config, source = read_config(folder), open_source(folder)
    inspection = Inspection(source, rename)
    shapes = kind(inspection, config)
    size = torch.float32.itemsize
    needs = {
        "weights": size * inspection.parameters,
        "streams": options.slots * shapes.streams.bytes_each,
        "a step": _STEP_FRAMES[device.type] * config.frame_samples * _STEP_BYTES,
    }
    ensure_room(device, needs, "give the stage fewer slots, or another device")
    return config, kind(Weights(source, device, torch.float32, rename), config), needs
