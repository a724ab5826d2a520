"""Kinds of audio files that a book can become, and what each of them holds besides sound."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from speechmill.infra.errors import BadInput

PART = ".mp3"
"""Of a file for each chapter: what every player of folders knows."""


@dataclass(frozen=True, slots=True)
class Kind:
    """`container` and `codec` as FFmpeg calls them."""

    container: str
    codec: str
    rates: tuple[int, ...] = ()
    """Rising; nothing where any rate will do."""
    most_bit_rate: int = 0
    """Bits a second; 0 where nothing is lost."""
    makeup: float = 1.0
    """What undoes the encoder's own gain."""
    has_cover: bool = True
    has_captions: bool = False
    chapters: Literal["container", "comments", "none"] = "container"
    """`comments`: as Vorbis comments, which FFmpeg itself writes for some of these containers only, and rounded."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Of the muxer."""

    def rate(self, of: int) -> int:
        """The smallest that it has at or above the given one, else its highest."""
        return next((rate for rate in self.rates if rate >= of), self.rates[-1]) if self.rates else of


_MPEG_RATES = (8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000)
_LAME_GAIN = 0.95
"""LAME makes everything softer by so much up to 160 kb/s."""
_MP4 = Kind("mp4", "aac", _MPEG_RATES, 320_000, has_captions=True, options={"movflags": "+faststart", "brand": "M4B "})
_MP3 = Kind("mp3", "libmp3lame", _MPEG_RATES, 160_000, 1 / _LAME_GAIN, options={"id3v2_version": "3"})
_OPUS = Kind("ogg", "libopus", (8000, 12000, 16000, 24000, 48000), 256_000, has_cover=False, chapters="comments")
KINDS = {
    ".m4b": _MP4,
    ".m4a": _MP4,
    ".mp3": _MP3,
    ".flac": Kind("flac", "flac", chapters="comments"),
    ".opus": _OPUS,
    ".ogg": _OPUS,
    ".wav": Kind("wav", "pcm_s16le", has_cover=False, chapters="none", options={"rf64": "auto"}),
}


def is_folder(out: Path) -> bool:
    """Whether a file for each chapter is meant: a folder that is there, or a name without an ending."""
    return out.is_dir() or not out.suffix


def kind_of(out: Path) -> Kind:
    """Raises BadInput for an unknown ending."""
    kind = KINDS.get(out.suffix.lower())
    if kind is None:
        raise BadInput(f"{out}: an audio book ends in one of {', '.join(KINDS)}; or name a folder")
    return kind
