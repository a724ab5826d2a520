"""Subtitles as a track of an MP4 file: 3GPP Timed Text (ETSI TS 126 245)."""

from fractions import Fraction
from typing import TYPE_CHECKING, cast

from speechmill.infra.subtitles import Cue

if TYPE_CHECKING:
    from av.container import OutputContainer
    from av.packet import Packet
    from av.stream import Stream
    from av.subtitles.stream import SubtitleStream

CODEC = "mov_text"
_MILLISECOND = Fraction(1, 1000)
_STYLE = b"""[Script Info]
ScriptType: v4.00+

[V4+ Styles]
Format: Name, Fontname, Fontsize, PrimaryColour, BackColour, Bold, Italic, Underline, Alignment
Style: Default,Arial,16,&Hffffff,&H0,0,0,0,2

[Events]
Format: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text
"""
"""FFmpeg takes the track's default style from a header of this kind."""


class TimedText:
    """A track of `container`; made before anything is written."""

    def __init__(self, container: "OutputContainer", language: str) -> None:
        self._stream = cast("SubtitleStream", container.add_stream(CODEC))
        self._stream.time_base = _MILLISECOND
        self._stream.metadata["language"] = language
        context = self._stream.codec_context
        context.time_base = _MILLISECOND
        context.subtitle_header = _STYLE
        context.open()

    def packet(self, cue: Cue) -> "Packet[Stream]":
        """A sample: the length of the text in two bytes, and the text."""
        import av

        text = cue.text.encode()
        packet = av.Packet(len(text).to_bytes(2, "big") + text)
        packet.stream, packet.time_base = self._stream, _MILLISECOND
        packet.pts = packet.dts = cue.start_ms
        packet.duration = cue.end_ms - cue.start_ms
        return packet
