"""How one piece of a log becomes samples, chunk by chunk, and what a decoder slot remembers between its pieces."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from speechmill.models.common.spectral import OverlapAdd
from speechmill.models.hibari.codes import Piece
from speechmill.models.hibari.decoder import CONTEXT, Decoder
from speechmill.models.hibari.signal import HOP, WINDOW, NoiseKey, PulseTrain, combine
from speechmill.models.stage import Mark


class Track:
    """One piece on its way through the decoder. Starts at any sample; what comes before is not made again."""

    def __init__(self, decoder: Decoder, piece: Piece, skip: int) -> None:
        """`skip`: samples of the piece that exist already."""
        self.features = decoder.features(piece)  # [frames, 130]
        self.pulses = PulseTrain(torch.from_numpy(piece.f0))
        self.stream = decoder.stream()
        first = max(0, skip // HOP - 1)  # a sample lies in four windows, the first one hop and a half before it
        self.overlap = OverlapAdd(WINDOW, HOP, first)
        self.frame = first
        self.fed = max(0, first - CONTEXT)
        self.warming = first - self.fed
        self.surplus = skip - (first + 1) * HOP if first else skip

    def take(self, frames: int) -> Tensor:
        """The feature rows that the network needs to make the next `frames` frames, or all the rest (0)."""
        end = self.frame + frames + CONTEXT
        self.stream.ended = not frames or end >= len(self.features)
        rows = self.features[self.fed :] if self.stream.ended else self.features[self.fed : end]
        self.fed += len(rows)
        return rows

    def settle(self, parts: Tensor) -> Tensor:
        """Of the network's answer [rows, 5·601], the frames that are wanted; they begin at `frame`."""
        wanted = parts[self.warming :]
        self.warming = 0
        return wanted

    def finish(self, spectra: Tensor) -> Tensor:
        """Spectra of the frames from `frame` on, [frames, 601] → the samples that are now complete."""
        samples = self.overlap.add(spectra, self.stream.ended)
        self.frame += len(spectra)
        cut = min(self.surplus, len(samples))
        self.surplus -= cut
        return samples[cut:]


@dataclass(slots=True)
class Playback:
    """One slot: the pieces that wait, the one that is being decoded and how far the log has come."""

    key: NoiseKey
    chunks: tuple[int, ...]
    """Frames per chunk, the last one repeats; 0 is the whole piece."""
    end: int
    """Samples in the own log."""
    pieces: deque[tuple[int, Piece]] = field(default_factory=deque)
    """With the frame of the input log at which each begins."""
    marks: deque[Mark] = field(default_factory=deque)
    track: Track | None = None
    ended: bool = False
    """The last piece has come."""
    taken: int = 0
    """Chunks taken."""

    @property
    def speaks(self) -> bool:
        """The piece at hand is speech, not a pause."""
        return bool(self.pieces) and len(self.pieces[0][1].ids) > 0

    @property
    def missing(self) -> int:
        """Samples of the piece at hand that are not in the log."""
        return (self.pieces[0][0] + self.pieces[0][1].frames) * HOP - self.end if self.pieces else 0

    def next_chunk(self) -> int:
        self.taken += 1
        return self.chunks[min(self.taken, len(self.chunks)) - 1]

    def account(self, samples: int) -> tuple[Mark, ...]:
        """The log has grown by so much: the words that have begun by now and were not told yet."""
        self.end += samples
        if self.pieces and not self.missing:
            self.pieces.popleft()
            self.track = None
        due: list[Mark] = []
        while self.marks and self.marks[0].start < self.end:
            due.append(self.marks.popleft())
        return tuple(due)


@torch.inference_mode()
def advance(decoder: Decoder, playbacks: Sequence[Playback]) -> list[Tensor]:
    """The next chunk of samples of each playback, in one batch; nothing where no piece is left."""
    speech = iter(_speak(decoder, [playback for playback in playbacks if playback.speaks]))
    return [next(speech) if playback.speaks else torch.zeros(playback.missing) for playback in playbacks]


def _speak(decoder: Decoder, playbacks: Sequence[Playback]) -> list[Tensor]:
    if not playbacks:
        return []
    tracks = [_track(decoder, playback) for playback in playbacks]
    features = [track.take(playback.next_chunk()) for track, playback in zip(tracks, playbacks, strict=True)]
    answers = decoder([track.stream for track in tracks], features)
    chunks: list[Tensor] = []
    for playback, track, answer in zip(playbacks, tracks, answers, strict=True):
        parts = track.settle(answer)
        pulses = track.pulses.spectra(track.frame, track.frame + len(parts))
        noise = playback.key.noise(playback.pieces[0][0] + track.frame, len(parts))
        chunks.append(track.finish(combine(parts, pulses, noise)))
    return chunks


def _track(decoder: Decoder, playback: Playback) -> Track:
    """The track of the piece at hand, begun where the log ends."""
    if playback.track is None:
        start, piece = playback.pieces[0]
        playback.track = Track(decoder, piece, max(0, playback.end - start * HOP))
    return playback.track
