"""The two stages of the embedded voice: `prosody` (text → codes) and `decoder` (codes → s16le at 24 kHz)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from speechmill.models.common.pcm import to_s16
from speechmill.models.hibari import codes
from speechmill.models.hibari.decoder import Decoder
from speechmill.models.hibari.playback import Playback, advance
from speechmill.models.hibari.prosody import Prosody
from speechmill.models.hibari.signal import HOP, NoiseKey
from speechmill.models.hibari.text import Reader, Utterance
from speechmill.models.hibari.weights import load_weights
from speechmill.models.stage import CannotLoad, Chunk, Emission, Mark, Resume, Stage, StageOptions, StageTask

_PAUSE_FRAMES = 8
_WARM_TASK = StageTask("warm", 0, 0, "Warmth, zzyx! Here.", "heart", 0)


def load(name: str, options: StageOptions) -> Stage:
    """Raises KeyError for a stage that the voice does not have, CannotLoad for a device that it does not run on."""
    if options.device != "cpu":
        raise CannotLoad("hibari runs on the CPU only")
    torch.set_num_threads(options.threads)
    stages: dict[str, type[ProsodyStage | DecoderStage]] = {"prosody": ProsodyStage, "decoder": DecoderStage}
    return stages[name](options)


@dataclass(slots=True)
class _Speech:
    """A prosody slot."""

    text: str
    utterances: list[Utterance]
    """Of the text; empty until the first step reads it, which takes milliseconds that more urgent slots may need."""
    speed: float
    spoken: int
    """Utterances in the log."""
    frames: int
    """Frames in the log."""


class ProsodyStage:
    """Emits one piece per utterance; the cursor counts them."""

    def __init__(self, options: StageOptions) -> None:
        self._reader = Reader()
        self._prosody = Prosody(load_weights())
        self._slots: dict[int, _Speech] = {}

    def warm(self) -> None:
        self.open(-1, _WARM_TASK, Resume())
        while not self.step([-1])[0].final:
            pass
        self.close(-1)

    def open(self, slot: int, task: StageTask, resume: Resume) -> None:
        spoken = int.from_bytes(resume.cursor, "little")
        self._slots[slot] = _Speech(task.text, [], _speed(task.params), spoken, resume.end)

    def feed(self, slot: int, chunk: Chunk) -> None:
        raise NotImplementedError("prosody takes its text from the task")

    def runnable(self, slot: int) -> bool:
        return True

    def step(self, slots: Sequence[int]) -> list[Emission]:
        return [self._next(slot, self._slots[slot]) for slot in slots]

    def close(self, slot: int) -> None:
        self._slots.pop(slot, None)

    def _next(self, slot: int, speech: _Speech) -> Emission:
        if not speech.utterances:
            speech.utterances = self._reader.read(speech.text)
        if speech.spoken == len(speech.utterances):
            return Emission(slot, final=True)
        utterance = speech.utterances[speech.spoken]
        if utterance.ids:
            piece = self._prosody(utterance.ids, speech.speed)
        else:
            piece = codes.pause(round(_PAUSE_FRAMES / speech.speed))
        marks = _word_times(utterance, piece, speech.frames)
        speech.spoken += 1
        speech.frames += piece.frames
        return Emission(
            slot,
            frames=piece.frames,
            payload=codes.encode(piece),
            marks=marks,
            cursor=speech.spoken.to_bytes(4, "little"),
            final=speech.spoken == len(speech.utterances),
        )


class DecoderStage:
    """Any chunking gives the same samples: the network is streamed exactly and every draw has a name.

    A resumed slot drops the pieces that are in the log and decodes from the first frame that the next sample needs.
    """

    def __init__(self, options: StageOptions) -> None:
        self._options = options
        self._decoder = Decoder(load_weights())
        self._slots: dict[int, Playback] = {}

    def warm(self) -> None:
        steps = 64
        curves = np.full((2, steps * codes.FRAMES_PER_STEP), 100, np.float32)
        piece = codes.Piece(np.full(steps, 50, np.uint8), np.ones(steps, np.uint8), curves[0], curves[1] / 100)
        for live in (True, False):
            task = StageTask("warm", 0, 0, "", "heart", 0, live=live)
            self.open(-1, task, Resume())
            self.feed(-1, Chunk(0, piece.frames, codes.encode(piece), final=True))
            while not self.step([-1])[0].final:
                pass
            self.close(-1)

    def open(self, slot: int, task: StageTask, resume: Resume) -> None:
        live = task.live and self._options.live_chunks
        chunks = self._options.live_chunks if live else (self._options.bulk_chunk,)
        self._slots[slot] = Playback(NoiseKey(task.seed, task.take, task.segment), chunks, resume.end)

    def feed(self, slot: int, chunk: Chunk) -> None:
        playback = self._slots[slot]
        playback.ended = chunk.final
        if chunk.payload and chunk.end * HOP > playback.end:
            playback.pieces.append((chunk.start, codes.decode(chunk.payload)))
        marks = (Mark(mark.word, mark.start * HOP, mark.end * HOP) for mark in chunk.marks)
        playback.marks += (mark for mark in marks if mark.start >= playback.end)

    def runnable(self, slot: int) -> bool:
        playback = self._slots[slot]
        return bool(playback.pieces) or playback.ended

    def step(self, slots: Sequence[int]) -> list[Emission]:
        chunks = advance(self._decoder, [self._slots[slot] for slot in slots])
        emissions = [self._emission(slot, samples) for slot, samples in zip(slots, chunks, strict=True)]
        return [emission for emission in emissions if emission.frames or emission.final]

    def close(self, slot: int) -> None:
        self._slots.pop(slot, None)

    def _emission(self, slot: int, samples: Tensor) -> Emission:
        playback = self._slots[slot]
        marks = playback.account(len(samples))
        final = playback.ended and not playback.pieces
        return Emission(slot, frames=len(samples), payload=to_s16(samples), marks=marks, final=final)


def _speed(params: Mapping[str, object]) -> float:
    speed = params.get("speed", 1.0)
    if not isinstance(speed, int | float):
        raise TypeError("speed is not a number")
    return float(speed)


def _word_times(utterance: Utterance, piece: codes.Piece, start: int) -> tuple[Mark, ...]:
    """Words in frames of the log, for a piece that begins at frame `start`."""
    edges = np.concatenate([[0], piece.durations.cumsum(dtype=np.int64)]) * codes.FRAMES_PER_STEP + start
    return tuple(Mark(word.text, int(edges[word.start]), int(edges[word.end])) for word in utterance.words)
