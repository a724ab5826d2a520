"""What a decoder slot remembers: codes that wait, and how far its stream and its log have come."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from speechmill.models.fish_speech.codec.decoder import Decoder

_PREPARED = 128
"""Frames that one step takes towards the place where a stream is resumed."""
_ALIKE = 0.75
"""Streams share a call where the shortest has at least this part of the longest one's frames; the rest is padding."""


@dataclass(slots=True)
class Playback:
    """Frames and samples are counted from the beginning of the logs."""

    chunks: tuple[int, ...]
    """Frames per chunk, the last one repeats; 0 is everything."""
    end: int
    """Samples in the own log."""
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

    @classmethod
    def begin(cls, decoder: Decoder, chunks: tuple[int, ...], end: int) -> "Playback":
        """A new stream at sample `end`, for which the codes from `frame` on are wanted."""
        audible = max(0, end // decoder.frame_samples - decoder.reach)
        origin = max(0, audible - decoder.post_reach)
        return cls(chunks, end, decoder.streams.open(origin), origin, audible)

    @property
    def is_preparing(self) -> bool:
        return self.frame < self.audible

    def feed(self, start: int, codes: Tensor) -> None:
        """Codes from frame `start` on."""
        wanted = codes[max(0, self.frame - start) :]
        self.waiting = torch.cat([self.waiting, wanted]) if len(self.waiting) else wanted

    def next_length(self, frame_samples: int) -> int:
        """Frames of the next step, or 0 where too few are there."""
        there = len(self.waiting)
        if self.is_preparing:
            return min(there, self.audible - self.frame, _PREPARED)
        chunk = self.chunks[min(self.taken, len(self.chunks) - 1)]
        before = self.end // frame_samples - self.frame  # of a resumed stream: made again, not emitted again
        wanted = before + chunk if chunk else there
        return wanted if there >= wanted else there if self.ended else 0

    def take(self, length: int) -> Tensor:
        codes, self.waiting = self.waiting[:length], self.waiting[length:]
        self.taken += not self.is_preparing
        self.frame += length
        return codes


def advance(decoder: Decoder, playbacks: Sequence[Playback], most: int) -> list[Tensor]:
    """One step: the samples that each playback's log gets now. Takes at most `most` frames, the first ones' first."""
    made = [torch.empty(0)] * len(playbacks)
    lengths: dict[int, int] = {}
    for index, playback in enumerate(playbacks):
        length = min(playback.next_length(decoder.frame_samples), most)
        if length and (not lengths or sum(lengths.values()) + length <= most):
            lengths[index] = length
    for preparing in (True, False):
        kind = {index: length for index, length in lengths.items() if playbacks[index].is_preparing is preparing}
        for group in _groups(kind):
            together = [playbacks[index] for index in group]
            codes = [playback.take(kind[index]) for index, playback in zip(group, together, strict=True)]
            streams = [playback.stream for playback in together]
            if preparing:
                decoder.prepare(streams, codes)
                continue
            for index, samples in zip(group, decoder(streams, codes), strict=True):
                made[index] = _fresh(playbacks[index], samples, decoder.frame_samples)
    return made


def _fresh(playback: Playback, samples: Tensor, frame_samples: int) -> Tensor:
    """Of the samples up to the playback's frame, those that its log does not hold; it holds them from now on."""
    until = playback.frame * frame_samples
    fresh = samples[max(0, len(samples) - (until - playback.end)) :] if until > playback.end else samples[:0]
    playback.end += len(fresh)
    return fresh


def _groups(lengths: dict[int, int]) -> list[list[int]]:
    """Which may share a call, by their numbers."""
    groups: list[list[int]] = []
    for index in sorted(lengths, key=lambda index: -lengths[index]):
        if groups and lengths[index] >= _ALIKE * lengths[groups[-1][0]]:
            groups[-1].append(index)
        else:
            groups.append([index])
    return groups
