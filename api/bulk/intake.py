"""Items on their way in: each is checked, and what is good is written down as the submission that it will be.

Nothing is queued before all of them have been seen.
"""

import asyncio
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO, cast

from speechmill.api.callers import Caller
from speechmill.api.errors import ApiError
from speechmill.api.farm import FarmState
from speechmill.api.speech.orders import Order
from speechmill.api.speech.submission import submission_of
from speechmill.infra.groups import dump_item, job_of
from speechmill.models.card import ModelCard

TOGETHER = 32
"""Items that are checked at the same time, for some fetch a recording."""
SPOOL_BYTES = 1 << 20
LONGEST_NAME = 512


@dataclass(frozen=True, slots=True)
class Item:
    """`index` counts from 0, as the client does."""

    index: int
    fields: dict[str, Any] | ApiError
    """Or why there are none."""

    @property
    def custom_id(self) -> str | None:
        name = None if isinstance(self.fields, ApiError) else self.fields.get("custom_id")
        return name if isinstance(name, str) and len(name) <= LONGEST_NAME else None


@dataclass
class Intake:
    """What has come in of one group. `order` makes an item's fields an order, and `refuse` hears of the bad ones."""

    group: str
    caller: Caller
    order: Callable[[dict[str, Any]], Awaitable[Order]]
    refuse: Callable[[Item, ApiError], None]
    items: BinaryIO = field(
        default_factory=lambda: cast(BinaryIO, tempfile.SpooledTemporaryFile(SPOOL_BYTES))  # noqa: SIM115  closed below
    )
    accepted: int = 0
    rejected: int = 0
    chars: Counter[str] = field(default_factory=Counter)
    """By model."""
    deadline_s: float = 0.0
    """The last one, from now."""
    retention_s: int = 0
    """The longest that a record of a job stays after its end."""
    cards: dict[str, ModelCard] = field(default_factory=dict)
    ignored: set[str] = field(default_factory=set)
    _seen: set[str] = field(default_factory=set)

    async def take(self, items: Sequence[Item]) -> None:
        """In their order, however long each takes to check."""
        for item, wanted in zip(items, await asyncio.gather(*map(self._check, items)), strict=True):
            if isinstance(wanted, ApiError):
                self.rejected += 1
                self.refuse(item, wanted)
            else:
                self._write(wanted)

    async def store(self, farm: FarmState, key: str) -> int:
        """Put the items into the store. Answers their bytes. Raises StoreUnavailable."""
        size = self.items.tell()
        await farm.in_store(farm.objects.put_once, key, self.items, "application/x-ndjson")
        return size

    def close(self) -> None:
        self.items.close()

    async def _check(self, item: Item) -> Order | ApiError:
        if isinstance(item.fields, ApiError):
            return item.fields
        name = item.custom_id
        if name is not None and name in self._seen:
            return ApiError(400, "invalid_value", "another item has this custom_id", "custom_id")
        if name is not None:
            self._seen.add(name)
        try:
            return await self.order(item.fields)
        except ApiError as error:
            return error

    def _write(self, wanted: Order) -> None:
        self.accepted += 1
        self.chars[wanted.card.id] += wanted.chars
        self.deadline_s = max(self.deadline_s, wanted.terms.timeout_s)
        self.retention_s = max(self.retention_s, wanted.terms.retention_s)
        self.cards[wanted.card.id] = wanted.card
        self.ignored.update(wanted.ignored)
        job = submission_of(self.caller, wanted, job_of(self.group, self.accepted))
        self.items.write(dump_item(replace(job, group_id=self.group, line=self.accepted, idempotency_key="")))
