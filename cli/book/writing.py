"""An audio file while it is written: sound, chapter marks, cover, tags and timed text."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from speechmill.cli.book.cover import Picture
from speechmill.cli.book.frames import LAYOUTS, frame_of
from speechmill.cli.book.kinds import Kind
from speechmill.cli.book.tags import Tags
from speechmill.cli.book.timed_text import TimedText
from speechmill.cli.book.timeline import Block, Timeline
from speechmill.infra.subtitles import Cue

if TYPE_CHECKING:
    from av.audio.stream import AudioStream

MILLISECOND = Fraction(1, 1000)
FRONT = "Cover (front)"
"""ID3's and FLAC's kind of picture, by the name that FFmpeg knows."""


@dataclass(frozen=True, slots=True)
class Dress:
    """What is put around the sound."""

    tags: Tags
    cover: Picture | None
    bit_rate: int
    """Bits a second, for a lossy codec."""
    cues: Sequence[Cue] | None
    """Rising in time; None where no track of them is wanted."""


class AudioFile:
    """A context manager; what it was given is all in the file when it ends without an error."""

    def __init__(self, path: Path, kind: Kind, timeline: Timeline, dress: Dress) -> None:
        import av

        self._rate, self._at, self._makeup = timeline.rate, 0, kind.makeup
        self._cues = list(dress.cues or ())[::-1]
        self._container = av.open(str(path), "w", format=kind.container, options=dict(kind.options))
        self._container.metadata.update(dress.tags.named())
        layout = LAYOUTS[timeline.channels]
        stream = self._container.add_stream(kind.codec, rate=kind.rate(timeline.rate), layout=layout)
        self._stream = cast("AudioStream", stream)
        self._stream.metadata["language"] = dress.tags.language_code
        if kind.most_bit_rate:
            self._stream.bit_rate = min(dress.bit_rate, kind.most_bit_rate)
        self._mark(kind, timeline)
        has_track = kind.has_captions and dress.cues is not None
        self._text = TimedText(self._container, dress.tags.language_code) if has_track else None
        if kind.has_cover and dress.cover is not None:
            self._show(dress.cover)

    def __enter__(self) -> "AudioFile":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._caption(None)
            self._container.mux(self._stream.encode(None))
        self._container.close()

    def write(self, block: Block) -> None:
        self._caption(1000 * self._at / self._rate)
        self._container.mux(self._stream.encode(frame_of(block * self._makeup, self._rate, self._at)))
        self._at += len(block)

    def _caption(self, until_ms: float | None) -> None:
        """Cues that begin by then; all that are left for None."""
        while self._text and self._cues and (until_ms is None or self._cues[-1].start_ms <= until_ms):
            self._container.mux(self._text.packet(self._cues.pop()))

    def _mark(self, kind: Kind, timeline: Timeline) -> None:
        if kind.chapters == "container":
            self._container.set_chapters([_chapter(number, timeline) for number in range(len(timeline.spans))])
        elif kind.chapters == "comments":
            for number, span in enumerate(timeline.spans):
                self._container.metadata[f"CHAPTER{number:03}"] = _clock(span.start / timeline.rate)
                self._container.metadata[f"CHAPTER{number:03}NAME"] = span.title

    def _show(self, cover: Picture) -> None:
        import av
        from av.stream import Disposition

        stream = self._container.add_mux_stream(cover.codec, width=cover.width, height=cover.height)
        stream.disposition = Disposition.attached_pic
        stream.metadata["comment"] = FRONT
        packet = av.Packet(cover.content)
        packet.stream, packet.time_base, packet.is_keyframe = stream, MILLISECOND, True
        packet.pts = packet.dts = 0
        self._container.start_encoding()
        self._container.mux(packet)


def _chapter(number: int, timeline: Timeline) -> Any:
    span = timeline.spans[number]
    start_ms, end_ms = (round(1000 * at / timeline.rate) for at in (span.start, span.end))
    titled = {"title": span.title}
    return {"id": number, "start": start_ms, "end": end_ms, "time_base": MILLISECOND, "metadata": titled}


def _clock(seconds: float) -> str:
    ms = round(1000 * seconds)
    return f"{ms // 3_600_000:02}:{ms // 60_000 % 60:02}:{ms // 1000 % 60:02}.{ms % 1000:03}"
