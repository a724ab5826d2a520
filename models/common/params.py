"""A request's parameters as a talker takes them."""

from collections.abc import Mapping


def number(params: Mapping[str, object], name: str, default: float) -> float:
    value = params.get(name)
    if value is None:
        return default
    if not isinstance(value, int | float):
        raise TypeError(f"{name} is not a number")
    return float(value)


def most_likely(params: Mapping[str, object], name: str, default: int) -> float:
    """A `top_k`; infinite for 0 and -1, which mean that there is no limit."""
    top_k = number(params, name, default)
    return top_k if top_k > 0 else float("inf")
