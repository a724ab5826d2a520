"""Groups of jobs: all items are checked, then all that are good are accepted in one step (speech_api §5.4.1)."""

import json
import logging
import time
from collections.abc import AsyncIterator
from typing import Any

from redis.exceptions import RedisError
from starlette.requests import Request
from starlette.responses import JSONResponse

from speechmill.api.bulk.body import BulkBody, OnInvalid
from speechmill.api.bulk.expand import expand
from speechmill.api.bulk.intake import TOGETHER, Intake, Item
from speechmill.api.bulk.lines import body_of, by_the, lines_of
from speechmill.api.bulk.shown import path_of, show_group
from speechmill.api.errors import ApiError, error_object
from speechmill.api.farm import FarmState
from speechmill.api.http.body import parse_long_object
from speechmill.api.jobs.body import JobBody, order_of
from speechmill.api.speech import validate
from speechmill.api.speech.allowance import Allowance
from speechmill.api.speech.batch import with_defaults
from speechmill.api.speech.orders import Asker, Order
from speechmill.infra import groups
from speechmill.infra.errors import FarmError
from speechmill.infra.keys import new_id
from speechmill.infra.protocol import expire

log = logging.getLogger(__name__)
MOST_TOLD = 100
"""Bad items that an answer names."""
AT_ONCE = 64
"""So small a group is submitted by the process that accepts it."""
OWN_S = 5.0
"""How long Celery leaves that to it."""
UPLOAD_S = 3600


async def create_group(asker: Asker, fields: dict[str, Any]) -> JSONResponse:
    """Of a JSON body. Raises ApiError 400, with the bad items in `details`."""
    body, most = validate.parse(BulkBody, fields), asker.farm.settings.limits.bulk_items
    if not body.requests:
        raise ApiError(400, "invalid_value", "requests holds nothing", "requests")
    if len(body.requests) > most:
        message = f"requests holds {len(body.requests)}; at most {most} are taken"
        raise ApiError(400, "too_many_items", message, "requests")
    making = _Making(asker, body.defaults or {}, body.on_invalid or "reject_all", "requests")
    making.ignored.update(validate.unknown_fields(body, asker.strict))
    return await making.run(_listed(body.requests))


async def create_group_of_lines(asker: Asker, request: Request) -> JSONResponse:
    """Of a body with one job per line, which is read while it comes; all of them must be good."""
    return await _Making(asker, {}, "reject_all", None).run(_lines(asker.farm, request))


async def _listed(requests: list[Any]) -> AsyncIterator[Item]:
    for index, fields in enumerate(requests):
        wrong = ApiError(400, "invalid_type", "an item must be an object")
        yield Item(index, fields if isinstance(fields, dict) else wrong)


async def _lines(farm: FarmState, request: Request) -> AsyncIterator[Item]:
    limits, index = farm.settings.limits, 0
    async for line in lines_of(body_of(request), limits.body_bytes):
        if not line.strip():
            continue
        if index == limits.bulk_lines:
            raise ApiError(400, "too_many_items", f"at most {limits.bulk_lines} lines are taken")
        try:
            yield Item(index, await parse_long_object(line))
        except ApiError as error:
            yield Item(index, error)
        index += 1


class _Making:
    """One group from its items to the answer that accepts it."""

    def __init__(self, asker: Asker, defaults: dict[str, Any], on_invalid: OnInvalid, param: str | None) -> None:
        self.ignored: set[str] = set()
        self._asker, self._farm, self._caller = asker, asker.farm, asker.caller
        self._defaults, self._on_invalid, self._param = defaults, on_invalid, param
        self._bad: list[dict[str, Any]] = []

    async def run(self, items: AsyncIterator[Item]) -> JSONResponse:
        intake = Intake(new_id("jobgrp"), self._caller, self._order, self._refuse)
        try:
            async for some in by_the(TOGETHER, items):
                await intake.take(some)
            return await self._accept(intake)
        finally:
            intake.close()

    async def _order(self, fields: dict[str, Any]) -> Order:
        request = fields.get("request")
        if isinstance(request, dict):
            fields = {**fields, "request": with_defaults(self._defaults, request)}
        body = validate.parse(JobBody, fields)
        self.ignored.update(validate.unknown_fields(body, self._asker.strict))
        return await order_of(self._asker, body)

    def _refuse(self, item: Item, error: ApiError) -> None:
        if len(self._bad) < MOST_TOLD:
            self._bad.append({"index": item.index, "custom_id": item.custom_id, "error": error_object(error)})

    async def _accept(self, intake: Intake) -> JSONResponse:
        if not intake.accepted and not intake.rejected:
            raise ApiError(400, "invalid_value", "there is no item", self._param)
        if intake.rejected and self._on_invalid == "reject_all":
            message = f"{intake.rejected} items are not valid: nothing was accepted"
            raise ApiError(400, "invalid_value", message, self._param, details=self._bad)
        allowance, taken = Allowance(self._farm, self._caller, "", intake.chars.total()), False
        await allowance.charge()
        try:
            group = await self._put(intake)
            taken = group == intake.group
            await self._farm.client.wait_durable()
        finally:
            await allowance.settle(accepted=taken)
        if taken and intake.accepted <= AT_ONCE:
            await self._expand(group)
        return await self._answer(group, allowance.headers | self._told(intake))

    async def _put(self, intake: Intake) -> str:
        """The group's id, or that of the one which the same idempotency key stands for."""
        farm, limits = self._farm, self._farm.settings.limits
        for card in intake.cards.values():
            await farm.admit(card, interactive=False, patient=True)
        key = f"groups/{self._caller.project}/{intake.group}/items"
        retention_s = intake.retention_s or farm.settings.retention.result_s
        await farm.client.run(expire(key, time.time() + intake.deadline_s + retention_s + UPLOAD_S))
        fields = {
            "project": self._caller.project,
            "kind": "jobs",
            "total": intake.accepted + intake.rejected,
            "rejected": intake.rejected,
            "window": limits.bulk_window,
            "items": key,
            "items_bytes": await intake.store(farm, key),
            "deadline_s": intake.deadline_s,
            "retention_s": retention_s,
            "project_jobs": self._caller.limits.queued_jobs or limits.project_jobs,
            "metadata": json.dumps({}),
            **groups.told({"rejected": self._bad}),
        }
        once = self._asker.once
        wait_s = OWN_S if intake.accepted <= AT_ONCE else 0.0
        call = groups.create_group(intake.group, fields, once, see_to_ms=int(wait_s * 1000))
        for model, chars in intake.chars.items():
            farm.metrics.chars.labels(model).inc(chars)
        return await farm.client.run(call)

    async def _expand(self, group: str) -> None:
        """The group is accepted already: what fails here is made up for by Celery."""
        try:
            record = await groups.find_group(self._farm.client, group)
            if record is not None:
                await expand(self._farm, record)
        except (RedisError, FarmError) as error:
            log.warning("not expanded", extra={"group": group, "error": type(error).__name__})

    def _told(self, intake: Intake) -> dict[str, str]:
        names = sorted({*self.ignored, *(f"request.{name}" for name in intake.ignored)})
        return {"X-Ignored-Params": ", ".join(names[: validate.MAX_IGNORED])} if names else {}

    async def _answer(self, group: str, headers: dict[str, str]) -> JSONResponse:
        record = await groups.find_group(self._farm.client, group)
        if record is None:
            raise ApiError(404, "job_not_found", "the group has gone already")
        return JSONResponse(show_group(record), 202, {**headers, "Location": path_of(record), "Retry-After": "1"})
