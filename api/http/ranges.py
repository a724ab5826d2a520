"""`Range` headers of one range, in bytes (RFC 9110 §14.2). Parsing takes linear time."""

import re
from collections.abc import AsyncIterator

from speechmill.api.errors import ApiError
from speechmill.api.farm import FarmState

PIECE_BYTES = 1 << 20
_ONE_RANGE = re.compile(r"bytes=(?:(\d{1,99})-(\d{0,99})|-(\d{1,99}))", re.ASCII | re.IGNORECASE)


def parse_range(header: str | None, size: int) -> tuple[int, int] | None:
    """First byte and the one behind the last; None for the whole, which a header that is no single range means too.

    Raises ApiError 416 for a range without a byte in it.
    """
    match = _ONE_RANGE.fullmatch(header.strip()) if header else None
    if match is None:
        return None
    first, last, suffix = match.groups()
    if suffix is not None:
        start, end = max(size - int(suffix), 0), size
    else:
        start, end = int(first), min(int(last) + 1 if last else size, size)
        if last and int(last) < start:
            return None
    if start >= end:
        error = ApiError(416, "range_not_satisfiable", f"the content has {size} bytes")
        error.headers = {"Content-Range": f"bytes */{size}"}
        raise error
    return start, end


async def stored_bytes(farm: FarmState, key: str, start: int, end: int) -> AsyncIterator[bytes]:
    """Bytes of a stored object, piece by piece: a slow reader holds neither a thread nor a connection.

    Raises ObjectMissing and StoreUnavailable, also between pieces.
    """
    for at in range(start, end, PIECE_BYTES):
        yield await farm.in_store(farm.objects.read_range, key, at, min(at + PIECE_BYTES, end))
