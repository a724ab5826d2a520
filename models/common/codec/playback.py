"""What a decoder slot remembers: codes that wait, and how far its stream and its log have come."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from speechmill.models.common.codec.decoder import Decoder

_CHEAPER = 16
"""How many frames may be taken towards the place where a stream is resumed in place of one that is decoded."""
_ALIKE = 0.75
"""Streams share a call where the shortest has at least this part of the longest one's frames; the rest is padding."""


@dataclass(slots=True)
class Playback:
    """Frames and samples are counted from the beginning of the stream, which is that of its reference if it has one."""

    chunks: tuple[int, ...]
    """Frames per chunk, the last one repeats; 0 is everything."""
    frame_samples: int
    heard: int
    """Frames of the reference, whose samples are not for the log."""
    end: int
    """Where the own log ends."""
    stream: int
    frame: int
    """The next one that the decoder takes."""
    audible: int
    """Frame from which on samples are made; those before only prepare the stream."""
    waiting: Tensor = field(default_factory=lambda: torch.empty(0))
    """Codes from `frame` on, [frames, codebooks]."""
    ended: bool = False
    """No more codes will come."""
    taken: int = 0
    """Chunks taken."""
    hurried: bool = False
    """The next chunk may be shorter: somebody runs dry."""

    @classmethod
    def begin(cls, decoder: Decoder, chunks: tuple[int, ...], end: int, reference: Tensor) -> "Playback":
        """A new stream behind the codes of `reference`, at sample `end` of its log; of its codes those are wanted on
        which what follows depends.
        """
        size, heard = decoder.frame_samples, len(reference)
        audible = max(0, heard + end // size - decoder.wave_reach)
        origin = max(0, audible - decoder.latent_reach)
        made = cls(chunks, size, heard, heard * size + end, decoder.streams.open(origin), origin, audible)
        made._append(0, reference)
        return made

    @property
    def is_preparing(self) -> bool:
        return self.frame < self.audible

    def feed(self, start: int, codes: Tensor) -> None:
        """Codes of the log from its frame `start` on."""
        self._append(self.heard + start, codes)

    def _append(self, start: int, codes: Tensor) -> None:
        wanted = codes[max(0, self.frame - start) :]
        self.waiting = torch.cat([self.waiting, wanted]) if len(self.waiting) else wanted

    def next_length(self) -> int:
        """Frames of the next step, or 0 where too few are there."""
        there, known = len(self.waiting), self._known
        if self.is_preparing:
            return min(there, self.audible - self.frame)
        chunk = self.chunks[min(self.taken, len(self.chunks) - 1)]
        wanted = known + chunk if chunk else there
        if there >= wanted or self.ended:
            return min(there, wanted)
        if self.hurried and there > known:
            return there
        return known if there >= known else 0

    @property
    def _known(self) -> int:
        """Frames to be taken of which the log has all samples; they go ahead while the codes of a chunk are awaited."""
        return self.end // self.frame_samples - self.frame

    def take(self, length: int) -> Tensor:
        codes, self.waiting = self.waiting[:length], self.waiting[length:]
        if not self.is_preparing and length > self._known:
            self.taken += 1
            self.hurried = False
        self.frame += length
        return codes

    def emitted(self, samples: Tensor) -> Tensor:
        """Of the samples up to `frame`, those that the log does not hold; it holds them from now on."""
        until = self.frame * self.frame_samples
        fresh = samples[max(0, len(samples) - (until - self.end)) :] if until > self.end else samples[:0]
        self.end += len(fresh)
        return fresh


def advance(decoder: Decoder, playbacks: Sequence[Playback], most: int) -> list[Tensor]:
    """One step: the samples that each playback's log gets now. Takes at most `most` frames, the first ones' first."""
    lengths = {index: playback.next_length() for index, playback in enumerate(playbacks)}
    preparing = {index: length for index, length in lengths.items() if playbacks[index].is_preparing}
    speaking = {index: length for index, length in lengths.items() if index not in preparing}
    for group in _groups(_affordable(preparing, _CHEAPER * most)):
        together = [playbacks[index] for index in group]
        decoder.prepare(
            [playback.stream for playback in together],
            [playback.take(length) for playback, length in zip(together, group.values(), strict=True)],
        )
    made = [torch.empty(0)] * len(playbacks)
    for group in _groups(_affordable(speaking, most)):
        streams = [playbacks[index].stream for index in group]
        codes = [playbacks[index].take(length) for index, length in group.items()]
        for index, samples in zip(group, decoder(streams, codes), strict=True):
            made[index] = playbacks[index].emitted(samples)
    return made


def _affordable(lengths: dict[int, int], most: int) -> dict[int, int]:
    """Those of the first that take no more than `most` frames together; the very first is cut to it."""
    chosen: dict[int, int] = {}
    for index, length in lengths.items():
        taken = sum(chosen.values())
        if length and (not chosen or taken + length <= most):
            chosen[index] = min(length, most)
    return chosen


def _groups(lengths: dict[int, int]) -> list[dict[int, int]]:
    """Those that may share a call."""
    groups: list[dict[int, int]] = []
    for index, length in sorted(lengths.items(), key=lambda item: -item[1]):
        if groups and length >= _ALIKE * max(groups[-1].values()):
            groups[-1][index] = length
        else:
            groups.append({index: length})
    return groups
