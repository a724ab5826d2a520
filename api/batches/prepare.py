"""A batch's file is read: its shape is checked, and its lines become items of a group (speech_api §5.3)."""

import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, BinaryIO, cast

from starlette.requests import HTTPConnection

from speechmill.api.batches.schemas import BatchLine
from speechmill.api.bulk.expand import LINE_BYTES
from speechmill.api.bulk.intake import SPOOL_BYTES, TOGETHER, Intake, Item
from speechmill.api.bulk.lines import by_the, lines_of
from speechmill.api.bulk.results import dump_line, refused_line
from speechmill.api.callers import Caller
from speechmill.api.errors import ApiError
from speechmill.api.farm import FarmState
from speechmill.api.http.body import parse_object
from speechmill.api.http.ranges import stored_bytes
from speechmill.api.jobs.body import refuse_streaming
from speechmill.api.speech import validate
from speechmill.api.speech.allowance import Allowance
from speechmill.api.speech.orders import Asker, Order, make_order
from speechmill.api.speech.terms import Terms, capped
from speechmill.configs.settings import KeyLimits
from speechmill.infra import files
from speechmill.infra.files import FileRecord
from speechmill.infra.groups import GroupRecord, begin_batch, derived_ulid, end_batch, tend_group, told
from speechmill.infra.keys import new_id
from speechmill.infra.objects import ObjectMissing
from speechmill.infra.protocol import expire

MOST_FAULTS = 100
HOLD_S = 60.0
"""How long a batch is left to the one that is reading it, after each step."""
KEPT_S = 2 * 86_400
"""Of results, until the batch's end makes files of them."""


async def prepare(farm: FarmState, batch: GroupRecord) -> None:
    """The batch is in progress, or has failed. Safe to do again, also where somebody else is at it."""
    file = await files.find(farm.client, batch.project, batch.details["input_file_id"])
    reading = _Reading(farm, batch)
    try:
        if file is None:
            reading.blame(None, ApiError(404, "file_not_found", "the input file is gone", "input_file_id"))
        else:
            await reading.read(file)
        if reading.faults:
            await reading.fail()
        else:
            await reading.begin()
    finally:
        reading.close()


class _Reading:
    """One way through the file. Nobody knows of it before `begin`."""

    def __init__(self, farm: FarmState, batch: GroupRecord) -> None:
        self.faults: list[dict[str, Any]] = []
        self._farm, self._batch = farm, batch
        fields = batch.details["caller"]
        limits = KeyLimits(**fields["limits"])
        self._caller = Caller(
            **{**fields, "scopes": frozenset(fields["scopes"]), "models": tuple(fields["models"]), "limits": limits}
        )
        self._asker = Asker(farm, self._caller, HTTPConnection({"type": "http", "headers": []}))
        self._terms = Terms(
            job_class=capped("batch", self._caller),
            timeout_s=batch.deadline_s,
            ttl_s=KEPT_S,
            max_chars=farm.settings.limits.job_input_chars,
            max_attempts=farm.settings.worker.max_attempts,
            detached=True,
            accounted=True,
            listed=False,
            group_id=batch.id,
        )
        self._names: set[str] = set()
        self._rejects = cast(BinaryIO, tempfile.SpooledTemporaryFile(SPOOL_BYTES))  # noqa: SIM115  see `close`
        self._intake = Intake(batch.id, self._caller, self._order, self._refuse)

    def close(self) -> None:
        self._rejects.close()
        self._intake.close()

    def blame(self, line: int | None, error: ApiError) -> None:
        """For what makes the file none of a batch."""
        if len(self.faults) < MOST_FAULTS:
            told_of = {"code": error.code, "line": line, "message": error.message, "param": error.param}
            self.faults.append(told_of)

    async def read(self, file: FileRecord) -> None:
        """Raises StoreUnavailable, Overloaded and RedisError: nothing is lost by that but time."""
        try:
            async for some in by_the(TOGETHER, self._lines(file)):
                if not self.faults:
                    await self._intake.take(some)
                    await self._farm.client.run(tend_group(self._batch.id, HOLD_S))
        except ApiError as error:
            self.blame(None, error)
        except ObjectMissing:
            self.blame(None, ApiError(404, "file_not_found", "the input file is gone", "input_file_id"))
        if not self.faults and not self._names:
            self.blame(None, ApiError(400, "invalid_value", "the file holds no line"))

    async def fail(self) -> None:
        await self._farm.client.run(end_batch(self._batch.id, "failed", told({"errors": self.faults})))

    async def begin(self) -> None:
        """What is accepted is charged for."""
        allowance, taken = Allowance(self._farm, self._caller, "", self._intake.chars.total()), False
        try:
            await allowance.charge(requests=0)
        except ApiError as error:
            await self._put_off(error)
            return
        try:
            taken = await self._begin() == "ok"
            await self._farm.client.wait_durable()
        finally:
            await allowance.settle(accepted=taken)

    async def _put_off(self, error: ApiError) -> None:
        """A rate of its key recovers within the day that a batch has; a quota need not."""
        if error.code == "quota_exceeded":
            self.blame(None, error)
            await self.fail()
        else:
            await self._farm.client.run(tend_group(self._batch.id, error.extra["retry_after_ms"] / 1000))

    async def _begin(self) -> str:
        farm, intake = self._farm, self._intake
        place = f"groups/{self._batch.project}/{self._batch.id}/{new_id('read')}"
        for part in ("items", "rejects"):
            await farm.client.run(expire(f"{place}/{part}", time.time() + 2 * self._batch.deadline_s))
        fields = {
            "total": intake.accepted + intake.rejected,
            "rejected": intake.rejected,
            "items": f"{place}/items",
            "items_bytes": await intake.store(farm, f"{place}/items"),
            **told({"rejects": f"{place}/rejects", "rejects_bytes": self._rejects.tell()}),
        }
        await farm.in_store(farm.objects.put_once, f"{place}/rejects", self._rejects, "application/x-ndjson")
        return await farm.client.run(begin_batch(self._batch.id, fields))

    async def _lines(self, file: FileRecord) -> AsyncIterator[Item]:
        number, most = 0, self._farm.settings.limits.batch_lines
        async for text in lines_of(stored_bytes(self._farm, file.key, 0, file.bytes), LINE_BYTES):
            number += 1
            if not text.strip():
                continue
            if len(self._names) == most:
                self.blame(number, ApiError(400, "too_many_items", f"at most {most} lines are taken"))
                return
            try:
                yield Item(number, self._checked(text).model_dump())
            except ApiError as error:
                self.blame(number, error)

    def _checked(self, text: bytes) -> BatchLine:
        line = validate.parse(BatchLine, parse_object(text))
        if line.custom_id in self._names:
            raise ApiError(400, "invalid_value", "another line has this custom_id", "custom_id")
        self._names.add(line.custom_id)
        try:
            refuse_streaming(line.body)
        except ApiError as error:
            error.param = f"body.{error.param}"
            raise
        return line

    async def _order(self, fields: dict[str, Any]) -> Order:
        return await make_order(self._asker, fields["body"], terms=replace(self._terms, custom_id=fields["custom_id"]))

    def _refuse(self, item: Item, error: ApiError) -> None:
        number = str(derived_ulid(self._batch.id, f"line {item.index}"))
        self._rejects.write(dump_line(refused_line(number, item.custom_id, error)))
