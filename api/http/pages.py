"""Cutting a list that is at hand into pages, by the id of the last item that the caller has."""

from collections.abc import Sequence
from typing import Protocol, TypeVar

from speechmill.api.errors import ApiError


class HasId(Protocol):
    @property
    def id(self) -> str: ...


Item = TypeVar("Item", bound=HasId)


def page_after(items: Sequence[Item], after: str | None, limit: int) -> tuple[Sequence[Item], bool]:
    """Up to `limit` items behind the one with the id `after`, and whether there are more.

    Raises ApiError 400 `invalid_cursor`.
    """
    ids = [item.id for item in items]
    if after is not None and after not in ids:
        raise ApiError(400, "invalid_cursor", "nothing in this list has the id that 'after' names", "after")
    first = 0 if after is None else ids.index(after) + 1
    return items[first : first + limit], first + limit < len(items)
