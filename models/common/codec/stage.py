"""A codec's decoder as a stage of the farm: codes in, s16le out."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from speechmill.models.common.codec.decoder import POSITIONS, Decoder
from speechmill.models.common.codec.loading import STEP_FRAMES
from speechmill.models.common.codec.playback import Playback, advance
from speechmill.models.common.memory import Needs
from speechmill.models.common.pcm import to_s16
from speechmill.models.stage import Chunk, Emission, Resume, SlotFailed, StageOptions, StageTask


class CodecStage:
    """Any chunking gives the same samples; a resumed slot makes its stream's state again from the logged codes.

    A stream may go on from a reference: its codes are the first of the stream, and what they sound like is not emitted.
    """

    def __init__(
        self,
        decoder: Decoder,
        memory: Needs,
        options: StageOptions,
        reference: Callable[[StageTask], Tensor | None] = lambda task: None,
    ) -> None:
        """`reference`: codes int64 [frames, codebooks] that a task's stream begins with; raises ValueError, in a line
        for the client, for what cannot be used.
        """
        self.memory = memory
        self._decoder, self._reference = decoder, reference
        self._options = options
        self._entries = torch.tensor(decoder.codebooks)
        self._most = STEP_FRAMES[decoder.device.type]
        self._slots: dict[int, Playback] = {}

    def warm(self) -> None:
        frames = sum(self._options.live_chunks) + 1
        codes = bytes(2 * len(self._decoder.codebooks) * frames)
        for live in (True, False):
            self.open(-1, StageTask("warm", 0, 0, "", "", 0, live=live), Resume())
            self.feed(-1, Chunk(0, frames, codes, final=True))
            while not self.step([-1])[0].final:
                pass
            self.close(-1)

    def open(self, slot: int, task: StageTask, resume: Resume) -> None:
        live = task.live and self._options.live_chunks
        chunks = self._options.live_chunks if live else (self._options.bulk_chunk,)
        try:
            reference = self._reference(task)
        except ValueError as error:
            raise SlotFailed(slot, str(error), "invalid_value") from None
        heard = torch.empty(0) if reference is None else reference
        self._slots[slot] = Playback.begin(self._decoder, chunks, resume.end, heard)

    def feed(self, slot: int, chunk: Chunk) -> None:
        playback = self._slots[slot]
        if playback.heard + chunk.end > POSITIONS:
            raise SlotFailed(slot, f"the codec speaks at most {POSITIONS} frames at once")
        codes = np.frombuffer(chunk.payload, "<u2").astype(np.int64).reshape(-1, len(self._decoder.codebooks))
        if len(codes) != chunk.end - chunk.start:
            raise ValueError(f"{len(codes)} frames of codes where the log counts {chunk.end - chunk.start}")
        playback.feed(chunk.start, self._usable(slot, torch.from_numpy(codes)))
        playback.ended = chunk.final

    def _usable(self, slot: int, codes: Tensor) -> Tensor:
        """The codes. Raises SlotFailed for those that the decoder has not."""
        beyond = codes[codes >= self._entries]
        if len(beyond):
            raise SlotFailed(slot, f"code {int(beyond[0])} is none of the codec's")
        return codes

    def hurry(self, slot: int) -> None:
        self._slots[slot].hurried = True

    def runnable(self, slot: int) -> bool:
        playback = self._slots[slot]
        return playback.ended or playback.next_length() > 0

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
