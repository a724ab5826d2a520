"""The samples of a stored result that holds every one of them, from any frame on."""

import tempfile
from collections.abc import Mapping
from typing import Any, BinaryIO, cast

import av
from av.audio.resampler import AudioResampler

from speechmill.infra.objects import ObjectStore

LOSSLESS = ("wav", "pcm", "flac")
READ_BYTES = 1 << 20
_SPOOL_BYTES = 8 << 20


class StoredSound:
    """s16le PCM, as it was in the job's `out` log. Blocking, for one reader at a time."""

    def __init__(self, objects: ObjectStore, result: Mapping[str, Any]) -> None:
        """`result`: the record of one in a format of `LOSSLESS`."""
        self.frames = int(result["frames"])
        self._objects = objects
        self.result = result
        self._frame_bytes = 2 * int(result["channels"])
        self._decoded: BinaryIO | None = None

    def read(self, position: int) -> bytes:
        """Some of the PCM from this frame on, empty at the end. Raises ObjectMissing, StoreUnavailable."""
        if position >= self.frames:
            return b""
        start = position * self._frame_bytes
        end = min(start + READ_BYTES // self._frame_bytes * self._frame_bytes, self.frames * self._frame_bytes)
        if self.result["format"] == "flac":
            file = self._decoded = self._decoded or self._decode()
            file.seek(start)
            return file.read(end - start)
        head = int(self.result["bytes"]) - self.frames * self._frame_bytes  # nothing follows the samples
        return self._objects.read_range(self.result["key"], head + start, head + end)

    def close(self) -> None:
        """Nothing is read any more."""
        if self._decoded is not None:
            self._decoded.close()

    def _decode(self) -> BinaryIO:
        pcm = cast(BinaryIO, tempfile.SpooledTemporaryFile(_SPOOL_BYTES))  # noqa: SIM115  closed by `close`
        with tempfile.SpooledTemporaryFile(_SPOOL_BYTES) as file:
            for piece in self._objects.get(self.result["key"]):
                file.write(piece)
            file.seek(0)
            with av.open(cast(BinaryIO, file), "r", format="flac") as container:
                stream = container.streams.audio[0]
                packed = AudioResampler("s16", stream.layout, stream.rate)
                for frame in container.decode(stream):
                    for made in packed.resample(frame):
                        pcm.write(made.to_ndarray().tobytes())
        return pcm
