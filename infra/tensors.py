"""The safetensors layout without its package, which the API has not: small files that are held in memory."""

import json
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

_TYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2",
    "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U8": "u1",
}  # fmt: skip
_LENGTH_BYTES = 8
_MOST_HEADER_BYTES = 1 << 20


class BadTensors(ValueError):
    """The bytes are not a safetensors file; the text says what is wrong."""


def read_tensors(data: bytes) -> dict[str, NDArray[Any]]:
    """Every tensor by name; bfloat16 as float32. Raises BadTensors."""
    header, body = _split(data)
    return {name: _tensor(entry, body) for name, entry in header.items() if name != "__metadata__"}


def write_tensor(name: str, values: NDArray[np.float32]) -> bytes:
    """A file with one tensor."""
    body = values.astype("<f4").tobytes()
    entry = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [0, len(body)]}
    header = json.dumps({name: entry}).encode()
    header += b" " * (-len(header) % _LENGTH_BYTES)  # the tensor is aligned
    return len(header).to_bytes(_LENGTH_BYTES, "little") + header + body


def _split(data: bytes) -> tuple[dict[str, Any], bytes]:
    length = int.from_bytes(data[:_LENGTH_BYTES], "little")
    end = _LENGTH_BYTES + length
    if not 0 < length <= _MOST_HEADER_BYTES or end > len(data):
        raise BadTensors("there is no safetensors header")
    try:
        header = json.loads(data[_LENGTH_BYTES:end])
    except (ValueError, RecursionError):
        raise BadTensors("the header is not JSON") from None
    if not isinstance(header, dict):
        raise BadTensors("the header is not a JSON object")
    return header, data[end:]


def _tensor(entry: Any, body: bytes) -> NDArray[Any]:
    try:
        dtype, shape, (start, end) = _TYPES[entry["dtype"]], tuple(entry["shape"]), entry["data_offsets"]
    except (KeyError, TypeError, ValueError):
        raise BadTensors("an entry lacks a known dtype, a shape or offsets") from None
    if not all(type(number) is int and number >= 0 for number in (*shape, start, end)):
        raise BadTensors("a shape or offset is not a whole number")
    wanted = math.prod(shape) * np.dtype(dtype).itemsize
    if end > len(body) or end - start != wanted:
        raise BadTensors("a shape and its offsets disagree")
    try:
        values = np.frombuffer(body[start:end], dtype).reshape(shape)
    except (ValueError, OverflowError):
        raise BadTensors("a shape has too many or too large dimensions") from None
    return (values.astype("<u4") << 16).view("<f4") if entry["dtype"] == "BF16" else values
