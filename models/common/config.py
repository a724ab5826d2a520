"""Reads a checkpoint's JSON, and says in a line which field is not what it should be. Needs no torch."""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from speechmill.models.stage import CheckpointError

T = TypeVar("T")


def read_json(path: Path, read: Callable[[dict[str, Any]], T]) -> T:
    """What `read` makes of a file's object. Raises CheckpointError in one line that names the file and the field."""
    try:
        return read(obj(json.loads(path.read_text(encoding="utf-8")), "the file"))
    except KeyError as error:
        raise CheckpointError(f"{path}: {error.args[0]} is missing") from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"cannot read {path}: {error}") from None


@contextmanager
def of_part(name: str) -> Iterator[None]:
    """Faults name the part too, of a file that has several with the same fields."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def obj(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _unfit(name, value, "an object")
    return value


def count(config: Mapping[str, Any], name: str) -> int:
    """Raises KeyError for one that is missing, as positive does."""
    return whole(config, name, 1)


def whole(config: Mapping[str, Any], name: str, least: int = 0) -> int:
    value = config[name]
    if type(value) is not int or value < least:
        raise _unfit(name, value, f"a whole number from {least} on")
    return value


def counts(config: Mapping[str, Any], name: str) -> tuple[int, ...]:
    """At least one of them."""
    values = config[name]
    if not isinstance(values, list) or not values or any(type(value) is not int or value < 1 for value in values):
        raise _unfit(name, values, "a list of whole numbers from 1 on")
    return tuple(values)


def positive(config: Mapping[str, Any], name: str) -> float:
    value = config[name]
    if type(value) not in (int, float) or not 0 < value < math.inf:
        raise _unfit(name, value, "a positive number")
    return float(value)


def flag(config: Mapping[str, Any], name: str, default: bool) -> bool:
    value = config.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise _unfit(name, value, "true or false")
    return value


def ensure(config: Mapping[str, Any], **known: Any) -> None:
    """Raises ValueError for a field that says anything else than what is `known` here, if it says something."""
    for name, value in known.items():
        if config.get(name) not in (None, value):
            raise ValueError(f"{name} is {json.dumps(config[name]):.40}; only {json.dumps(value)} is known here")


def ensure_plain_rope(config: Mapping[str, Any]) -> None:
    """The same of `rope_scaling`. An older spelling of its type goes first, as in Transformers."""
    rotary = obj(config.get("rope_scaling") or {}, "rope_scaling")
    ensure({"rope_type": rotary.get("type", rotary.get("rope_type"))}, rope_type="default")


def _unfit(name: str, value: Any, expected: str) -> ValueError:
    return ValueError(f"{name} is {json.dumps(value):.40}, expected {expected}")
