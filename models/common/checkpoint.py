"""Checkpoints as published: safetensors, whole or in shards, and pickled state dicts. Tensors are read when asked for.

A model's constructor asks a `Reader` for each tensor by key and shape, so that a file that does not fit is told by the
key, the file and the shapes; and what a model needs can be checked without reading a single tensor (`Inspection`).
"""

import json
import pickle
from collections.abc import Callable, Iterable, Mapping
from math import prod
from pathlib import Path
from typing import Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from speechmill.models.stage import CheckpointError

Shape = tuple[int, ...]
_POINTER = b"version https://git-lfs"


class Reader(Protocol):
    """Gives a model its tensors."""

    def has(self, key: str) -> bool: ...

    def take(self, key: str, shape: Shape) -> Tensor:
        """The tensor, on the model's device and in its dtype. Raises CheckpointError for one that does not fit."""

    def at(self, prefix: str) -> "Reader":
        """The same tensors, with keys that begin after `prefix.`"""


class Source(Protocol):
    """Where tensors lie."""

    place: Path
    """What errors name when a key is in no file."""

    def shapes(self) -> Mapping[str, Shape]: ...

    def file(self, key: str) -> Path: ...

    def read(self, key: str, device: torch.device) -> Tensor: ...


class Safetensors:
    """One file, or the shards that an index names; memory-mapped, read straight to the device."""

    def __init__(self, path: Path) -> None:
        """`path`: a `.safetensors` file or its `.index.json`. Raises CheckpointError for what cannot be read."""
        self.place = path
        self._files: dict[str, Path] = {}
        self._shapes: dict[str, Shape] = {}
        for shard in _shards(path):
            self._list(shard)

    def _list(self, shard: Path) -> None:
        try:
            with safe_open(shard, framework="pt") as opened:
                for key in opened.keys():  # noqa: SIM118 (not a mapping)
                    self._files[key] = shard
                    self._shapes[key] = tuple(opened.get_slice(key).get_shape())
        except OSError as error:
            raise CheckpointError(f"cannot read {shard}: {error}") from None
        except SafetensorError as error:
            told = _as_pointer(shard) or f"it is cut off, or no safetensors file ({error}): download it again"
            raise CheckpointError(f"cannot read {shard}: {told}") from None

    def shapes(self) -> Mapping[str, Shape]:
        return self._shapes

    def file(self, key: str) -> Path:
        return self._files[key]

    def read(self, key: str, device: torch.device) -> Tensor:
        with safe_open(self._files[key], framework="pt", device=str(device)) as opened:
            tensor: Tensor = opened.get_tensor(key)
        return tensor


def _shards(path: Path) -> list[Path]:
    if path.suffix != ".json":
        return [path]
    try:
        names = set(json.loads(path.read_text(encoding="utf-8"))["weight_map"].values())
        return [path.parent / name for name in sorted(names)]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"cannot read {path}: {error!r}") from None


class StateDict:
    """A pickled state dict (`.pth`), maybe under `state_dict`; only tensors are unpickled, and they are mapped."""

    def __init__(self, path: Path) -> None:
        """Raises CheckpointError for what cannot be read."""
        self.place = path
        self._tensors = {key: value for key, value in _unpickle(path).items() if isinstance(value, Tensor)}

    def shapes(self) -> Mapping[str, Shape]:
        return {key: tuple(tensor.shape) for key, tensor in self._tensors.items()}

    def file(self, key: str) -> Path:
        return self.place

    def read(self, key: str, device: torch.device) -> Tensor:
        return self._tensors[key].to(device)


def _unpickle(path: Path) -> dict[str, object]:
    try:
        with path.open("rb") as file:
            mapped = file.read(2) == b"PK"  # older files are no archives and cannot be mapped
        loaded = torch.load(path, map_location="cpu", mmap=mapped, weights_only=True)
    except (OSError, RuntimeError, ValueError, EOFError, pickle.UnpicklingError) as error:
        raise CheckpointError(f"cannot read {path}: {_as_pointer(path) or _first_line(error)}") from None
    inner = loaded.get("state_dict", loaded) if isinstance(loaded, dict) else None
    if not isinstance(inner, dict):
        raise CheckpointError(f"{path} holds no state dict")
    return inner


def _as_pointer(path: Path) -> str:
    """What is wrong with a file that git left in place of the real one; "" for any other."""
    try:
        with path.open("rb") as file:
            if file.read(len(_POINTER)) != _POINTER:
                return ""
    except OSError:
        return ""
    return "it is a git-lfs pointer, which names the file but is not it: download it again, or `git lfs pull`"


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


class Weights:
    """A Reader over a source. `rename` gives a key of the file its name in the model, or None where it has none."""

    def __init__(
        self,
        source: Source,
        device: torch.device | str = "cpu",
        dtype: torch.dtype | None = None,
        rename: Callable[[str], str | None] = lambda key: key,
    ) -> None:
        """`dtype`: of every tensor that is taken; None leaves each as it is stored."""
        self._source = source
        self._device, self._dtype = torch.device(device), dtype
        self._keys = _renamed(source.shapes(), rename)
        self._prefix = ""

    def has(self, key: str) -> bool:
        return self._prefix + key in self._keys

    def take(self, key: str, shape: Shape) -> Tensor:
        stored = self._checked(key, shape)
        tensor = self._source.read(stored, self._device)
        return tensor.to(self._dtype or tensor.dtype).contiguous()

    def at(self, prefix: str) -> "Weights":
        inner = object.__new__(type(self))
        inner.__dict__.update(self.__dict__)
        inner._prefix = f"{self._prefix}{prefix}."
        return inner

    def _checked(self, key: str, shape: Shape) -> str:
        """The key in the file. Raises CheckpointError."""
        name = self._prefix + key
        if name not in self._keys:
            raise CheckpointError(f"{self._source.place}: {name} {list(shape)} is missing")
        stored = self._keys[name]
        found = self._source.shapes()[stored]
        if found != shape:
            raise CheckpointError(f"{self._source.file(stored)}: {stored} is {list(found)}, expected {list(shape)}")
        return stored


class Inspection(Weights):
    """Notes what does not fit instead of raising, and reads nothing: tensors are on the device `meta`."""

    def __init__(self, source: Source, rename: Callable[[str], str | None] = lambda key: key) -> None:
        super().__init__(source, rename=rename)
        self.findings: list[str] = []
        self._taken: dict[str, int] = {}

    @property
    def parameters(self) -> int:
        """Numbers that were taken; what is taken twice counts once."""
        return sum(self._taken.values())

    def take(self, key: str, shape: Shape) -> Tensor:
        try:
            self._checked(key, shape)
        except CheckpointError as error:
            self.findings.append(str(error))
        self._taken[self._prefix + key] = prod(shape)
        return torch.empty(shape, device="meta")


def _renamed(keys: Iterable[str], rename: Callable[[str], str | None]) -> dict[str, str]:
    """Stored keys by their names in the model."""
    named = ((rename(key), key) for key in keys)
    return {name: key for name, key in named if name is not None}
