"""The picture of a book: JPEG or PNG, for that is what players show."""

import io
from dataclasses import dataclass
from pathlib import Path

from speechmill.infra.errors import BadInput

_CODECS = {b"\xff\xd8\xff": "mjpeg", b"\x89PNG\r\n\x1a\n": "png"}
MOST_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Picture:
    """`codec` as FFmpeg calls it; size in pixels."""

    content: bytes
    codec: str
    width: int
    height: int


def picture_of(content: bytes, name: str) -> Picture:
    """Raises BadInput."""
    import av

    codec = next((codec for start, codec in _CODECS.items() if content.startswith(start)), None)
    if codec is None or len(content) > MOST_BYTES:
        raise BadInput(f"{name}: a cover is a JPEG or PNG file of at most {MOST_BYTES >> 20} MiB")
    try:
        with av.open(io.BytesIO(content), "r") as image:
            frame = next(image.decode(video=0))
    except (av.FFmpegError, StopIteration, IndexError) as error:
        raise BadInput(f"{name}: the picture is broken ({error})") from None
    return Picture(content, codec, frame.width, frame.height)


def read_picture(path: Path) -> Picture:
    """Raises BadInput, OSError."""
    with path.open("rb") as file:
        return picture_of(file.read(MOST_BYTES + 1), str(path))
