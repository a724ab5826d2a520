"""Whether a value is what a case expects. Plain objects and arrays match by shape, `$…` keys by rule."""

import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from .values import Variables


class _Missing(Enum):
    ABSENT = "absent"


ABSENT = _Missing.ABSENT
"""Stands for a key that is not there."""


class Mismatch(AssertionError):
    """What was expected, what came, and where."""


def match(wanted: Any, found: Any, captured: Variables, where: str = "body") -> None:
    """Stores what `$capture` names in `captured`. Raises Mismatch."""
    if isinstance(wanted, Mapping):
        _match_object(wanted, found, captured, where)
    elif isinstance(wanted, list):
        _check(isinstance(found, list) and len(found) == len(wanted), where, f"{len(wanted)} elements", found)
        for index, (one, other) in enumerate(zip(wanted, found, strict=True)):
            match(one, other, captured, f"{where}[{index}]")
    else:
        _check(equal(wanted, found), where, wanted, found)


def matches(wanted: Any, found: Any, captured: Variables) -> bool:
    """Captures only where everything holds."""
    own: Variables = {}
    try:
        match(wanted, found, own)
    except Mismatch:
        return False
    captured |= own
    return True


def equal(one: Any, other: Any) -> bool:
    """JSON's equality: booleans are not numbers, 1 and 1.0 are the same."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(equal(value, other[key]) for key, value in one.items())
    return bool(one == other)


def _match_object(wanted: Mapping[str, Any], found: Any, captured: Variables, where: str) -> None:
    fields = {key: value for key, value in wanted.items() if not key.startswith("$")}
    rules = {key: value for key, value in wanted.items() if key.startswith("$") and key != "$capture"}
    if fields or not wanted:
        _check(isinstance(found, Mapping), where, "an object", found)
    for key, value in fields.items():
        match(value, found.get(key, ABSENT), captured, f"{where}.{key}")
    for name, argument in rules.items():
        _check(_RULES[name](argument, found, captured), where, {name: argument}, found)
    if "$capture" in wanted:
        _check(found is not ABSENT, where, "something to keep", found)
        captured[wanted["$capture"]] = found


def _check(holds: bool, where: str, wanted: Any, found: Any) -> None:
    if not holds:
        raise Mismatch(f"{where}: expected {wanted!r}, got {'nothing' if found is ABSENT else repr(found)[:500]}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_TYPES: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": _is_number,
    "boolean": lambda value: isinstance(value, bool),
    "object": lambda value: isinstance(value, Mapping),
    "array": lambda value: isinstance(value, list),
    "null": lambda value: value is None,
}


def _holds(member: Any, found: Any) -> bool:
    if isinstance(found, str):
        return isinstance(member, str) and member in found
    return isinstance(found, list) and any(matches(member, item, {}) for item in found)


def _members(argument: Any) -> list[Any]:
    return argument if isinstance(argument, list) else [argument]


def _has_length(wanted: Any, found: Any, captured: Variables) -> bool:
    return isinstance(found, str | list | Mapping) and matches(wanted, len(found), captured)


def _each(wanted: Any, found: Any, captured: Variables) -> bool:
    return isinstance(found, list) and all(matches(wanted, item, captured) for item in found)


def _some(wanted: Any, found: Any, captured: Variables) -> bool:
    return isinstance(found, list) and any(matches(wanted, item, captured) for item in found)


def _is_int_text(found: Any) -> bool:
    return isinstance(found, str) and re.fullmatch(r"-?\d+", found) is not None


_RULES: dict[str, Callable[[Any, Any, Variables], bool]] = {
    "$type": lambda names, found, _: any(_TYPES[name](found) for name in _members(names)),
    "$regex": lambda pattern, found, _: isinstance(found, str) and re.search(pattern, found) is not None,
    "$in": lambda options, found, captured: any(matches(option, found, captured) for option in options),
    "$not": lambda unwanted, found, _: not matches(unwanted, found, {}),
    "$gte": lambda least, found, _: _is_number(found) and found >= least,
    "$lte": lambda most, found, _: _is_number(found) and found <= most,
    "$contains": lambda members, found, _: all(_holds(member, found) for member in _members(members)),
    "$lacks": lambda members, found, _: not any(_holds(member, found) for member in _members(members)),
    "$len": _has_length,
    "$each": _each,
    "$some": _some,
    "$any": lambda options, found, captured: any(matches(option, found, captured) for option in options),
    "$int_text": lambda wanted, found, _: _is_int_text(found) is wanted,
    "$present": lambda wanted, found, _: (found is not ABSENT and found is not None) is wanted,
    "$absent": lambda wanted, found, _: (found is ABSENT or found is None) is wanted,
}
