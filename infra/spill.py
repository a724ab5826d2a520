"""`out` behind the replay window: readable PCM objects in S3, so that late readers can always begin at 0."""

from speechmill.infra.keys import LogRef
from speechmill.infra.objects import ObjectStore


class Spill:
    """Objects `spill/<log>/<start>-<end>.pcm`, positions in frames."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects

    @staticmethod
    def folder(log: LogRef) -> str:
        return f"spill/{log.name}/"

    def key(self, log: LogRef, start: int, end: int) -> str:
        return f"{self.folder(log)}{start:012d}-{end:012d}.pcm"

    def write(self, log: LogRef, start: int, end: int, pcm: bytes) -> str:
        """Put a piece; the same piece again is fine. Answers its key."""
        key = self.key(log, start, end)
        self._objects.put_once(key, pcm, "audio/pcm")
        return key

    def read(self, log: LogRef, position: int) -> tuple[int, bytes] | None:
        """The piece that covers `position`, with the frame it starts at."""
        for found in self._objects.list_prefix(self.folder(log)):
            start, end = (int(part) for part in found.key.rsplit("/", 1)[1].removesuffix(".pcm").split("-"))
            if start <= position < end:
                return start, b"".join(self._objects.get(found.key))
        return None
