"""`out` behind the replay window: readable PCM objects in S3, so that late readers can always begin at 0."""

from contextlib import suppress
from typing import BinaryIO

from speechmill.infra.errors import ObjectExists
from speechmill.infra.keys import LogRef
from speechmill.infra.messages import WordMark, decode_marks, encode_marks
from speechmill.infra.objects import ObjectStore

MARKS = ".marks"
READ_BYTES = 1 << 20
"""A piece may be minutes long: too much to hold for every slow reader."""


class Spill:
    """Objects `spill/<log>/<start>-<end>.pcm`, positions in frames; where words end there, `….marks` beside it."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects

    @staticmethod
    def folder(log: LogRef) -> str:
        return f"spill/{log.name}/"

    def key(self, log: LogRef, start: int, end: int) -> str:
        return f"{self.folder(log)}{start:012d}-{end:012d}.pcm"

    def write(
        self, log: LogRef, start: int, end: int, pcm: BinaryIO | bytes, marks: tuple[WordMark, ...] = ()
    ) -> None:
        """Put a piece, its words first. Of one that was put before, what is there counts: who made it again may have
        made other last bits.
        """
        key = self.key(log, start, end)
        if marks:
            self._put(key + MARKS, encode_marks(marks).encode(), "application/json")
        self._put(key, pcm, "audio/pcm")

    def _put(self, key: str, body: BinaryIO | bytes, kind: str) -> None:
        with suppress(ObjectExists):
            self._objects.put_once(key, body, kind)

    def read(self, log: LogRef, position: int) -> tuple[int, bytes, tuple[WordMark, ...]] | None:
        """Some of the audio from `position` on, with the frame that it starts at and the words that end within it; None
        when no piece covers it.
        """
        found = {piece.key: piece.size_bytes for piece in self._objects.list_prefix(self.folder(log))}
        for key, size_bytes in found.items():
            if key.endswith(MARKS):
                continue
            start, end = (int(part) for part in key.rsplit("/", 1)[1].removesuffix(".pcm").split("-"))
            if start <= position < end:
                frame = size_bytes // (end - start)
                until = min(position + READ_BYTES // frame, end)
                pcm = self._objects.read_range(key, (position - start) * frame, (until - start) * frame)
                words = decode_marks(b"".join(self._objects.get(key + MARKS))) if key + MARKS in found else ()
                last = max((word.end for word in words), default=0) if until == end else until
                return position, pcm, tuple(word for word in words if position < word.end <= last)
        return None
