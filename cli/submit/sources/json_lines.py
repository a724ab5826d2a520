"""`.jsonl`: one object per line, of request fields or `{"custom_id": …, "request": {…}}`."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from speechmill.cli.submit.sources.fields import item_of
from speechmill.cli.submit.sources.item import Item
from speechmill.infra.errors import BadInput


def read_json_lines(lines: Iterable[str], name: str, ignore_unknown: bool) -> Iterator[Item]:
    """Blank lines are no items. Raises BadInput."""
    for number, line in enumerate(lines, 1):
        if line.strip():
            where = f"{name}:{number}"
            yield item_of(_fields(line, where), where, ignore_unknown)


def _fields(line: str, where: str) -> dict[str, Any]:
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise BadInput(f"{where}: it is no JSON ({error})") from None
    except RecursionError:
        raise BadInput(f"{where}: it is nested too deeply") from None
    if not isinstance(fields, dict):
        raise BadInput(f"{where}: it is no JSON object")
    request = fields.pop("request", {})
    if not isinstance(request, dict):
        raise BadInput(f"{where}: request must be an object")
    if twice := sorted(fields.keys() & request.keys()):
        raise BadInput(f"{where}: {twice[0]!r} stands in the request and beside it")
    return fields | request
