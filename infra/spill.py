"""`out` behind the replay window: readable PCM objects in S3, so that late readers can always begin at 0."""

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

    def write(self, log: LogRef, start: int, end: int, pcm: bytes, marks: tuple[WordMark, ...] = ()) -> None:
        """Put a piece; the same piece again is fine."""
        key = self.key(log, start, end)
        if marks:
            self._objects.put_once(key + MARKS, encode_marks(marks).encode(), "application/json")
        self._objects.put_once(key, pcm, "audio/pcm")

    def read(self, log: LogRef, position: int) -> tuple[int, bytes, tuple[WordMark, ...]] | None:
        """Some of the audio from `position` on, with the frame that it starts at; None when no piece covers it.

        The words of a whole piece come with its first frame.
        """
        found = {piece.key: piece.size_bytes for piece in self._objects.list_prefix(self.folder(log))}
        for key, size_bytes in found.items():
            if key.endswith(MARKS):
                continue
            start, end = (int(part) for part in key.rsplit("/", 1)[1].removesuffix(".pcm").split("-"))
            if start <= position < end:
                frame = size_bytes // (end - start)
                first = (position - start) * frame
                most = READ_BYTES // frame * frame
                pcm = self._objects.read_range(key, first, min(first + most, size_bytes))
                marked = position == start and key + MARKS in found
                return position, pcm, decode_marks(b"".join(self._objects.get(key + MARKS))) if marked else ()
        return None
