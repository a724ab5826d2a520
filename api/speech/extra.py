"""`extra_params`: a model's own parameters, checked against its card (speech_api §1.1)."""

import json
import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from speechmill.api.errors import ApiError
from speechmill.models.card import ExtraParameter, ModelCard

MAX_KEYS = 32
MAX_BYTES = 16 << 10
MAX_NAME = 64


def check_extra(given: Mapping[str, Any], card: ModelCard) -> None:
    """Raises ApiError 400 for the first key that the model does not know, or whose value it cannot use."""
    if len(given) > MAX_KEYS or len(json.dumps(given)) > MAX_BYTES:
        message = f"extra_params holds at most {MAX_KEYS} keys and {MAX_BYTES} bytes"
        raise ApiError(400, "invalid_value", message, "extra_params")
    known = card.parameters.extra_parameters
    for name, value in given.items():
        field = f"extra_params.{name[:MAX_NAME]}"
        if name not in known:
            message = f"model {card.id} does not know {field!r}; it knows {', '.join(known) or 'none'}"
            raise ApiError(400, "unsupported_parameter", message, field)
        if value is not None:
            _check_value(field, value, known[name])


def _check_value(field: str, value: Any, rule: ExtraParameter) -> None:
    if not _is_of_kind(value, rule.kind):
        raise ApiError(400, "invalid_type", f"{field} must be of the kind {rule.kind!r}", field)
    if rule.kind == "rising" and not all(before < after for before, after in pairwise(value)):
        raise ApiError(400, "invalid_value", f"{field} must rise", field)
    if rule.choices and value not in rule.choices:
        raise ApiError(400, "invalid_value", f"{field} must be one of {', '.join(rule.choices)}", field)
    if rule.kind in ("number", "integer") and value not in rule.also and not _is_within(value, rule):
        raise ApiError(400, "invalid_value", f"{field} must be {_bounds(rule)}", field)


def _is_of_kind(value: Any, kind: str) -> bool:
    if kind == "boolean":
        return isinstance(value, bool)
    if kind == "string":
        return isinstance(value, str)
    if kind == "integer":
        return isinstance(value, int) and not isinstance(value, bool)
    if kind == "number":
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return isinstance(value, list) and len(value) > 1 and all(_is_of_kind(item, "number") for item in value)


def _is_within(value: float, rule: ExtraParameter) -> bool:
    low = -math.inf if rule.minimum is None else rule.minimum
    high = math.inf if rule.maximum is None else rule.maximum
    return low <= value <= high and (rule.above is None or value > rule.above)


def _bounds(rule: ExtraParameter) -> str:
    named = {"above": rule.above, "at least": rule.minimum, "at most": rule.maximum}
    return ", ".join(f"{word} {bound:g}" for word, bound in named.items() if bound is not None)
