"""Values of a JSON object, held to what they must be.

Every function raises KeyError for a field that is missing and ValueError, in one line that names it, for one that does
not fit.
"""

import json
import math
from collections.abc import Mapping
from typing import Any

Fields = Mapping[str, Any]


def inner(fields: Fields, name: str) -> dict[str, Any]:
    """An object."""
    return as_object(fields[name], name)


def as_object(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise unfit(name, value, "an object")
    return value


def count(fields: Fields, name: str) -> int:
    """A whole number from 1 on."""
    return whole(fields, name, 1)


def whole(fields: Fields, name: str, least: int = 0) -> int:
    value = fields[name]
    if type(value) is not int or value < least:
        raise unfit(name, value, f"a whole number from {least} on")
    return value


def positive(fields: Fields, name: str) -> float:
    value = fields[name]
    if type(value) not in (int, float) or not 0 < value < math.inf:
        raise unfit(name, value, "a positive number")
    return float(value)


def flag(fields: Fields, name: str, default: bool) -> bool:
    """`default` for one that is missing, or null."""
    value = fields.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise unfit(name, value, "true or false")
    return value


def unfit(name: str, value: Any, expected: str) -> ValueError:
    return ValueError(f"{name} is {json.dumps(value):.40}, expected {expected}")
