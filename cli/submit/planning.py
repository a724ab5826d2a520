"""Items of the sources as files to be made: their names, their requests, and nothing twice. Nothing is sent yet."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from speechmill.cli.submit.naming import extension_of, file_name
from speechmill.cli.submit.outputs import Output
from speechmill.cli.submit.rows import Planned, dump
from speechmill.cli.submit.sources.gather import Gathered
from speechmill.cli.submit.state import State
from speechmill.infra.errors import BadInput

WEEK_S = 604_800
"""Jobs wait for their turn for as long as the farm allows."""
KEPT_S = 172_800
"""How long results wait for us. Each costs the farm memory until then, and there may be very many."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the command says for all items. An item's own fields win."""

    request: Mapping[str, Any]
    terms: Mapping[str, Any]
    template: str


def planned(gathered: Iterable[Gathered], wishes: Wishes) -> Iterator[Planned]:
    """Numbered from 1. Raises BadInput, as the sources do."""
    for position, one in enumerate(gathered, 1):
        item = one.item
        request = {**wishes.request, **item.request}
        custom_id = item.custom_id or f"{one.label}-{one.number:05d}"
        told = {"request": request, **item.terms, "custom_id": custom_id}
        name = file_name(wishes.template, _values(position, one.label, custom_id, request))
        yield Planned(
            name=name,
            custom_id=custom_id,
            position=position,
            place=item.where,
            digest=hashlib.sha256(dump(told).encode()).hexdigest(),
            body=dump({"ttl_seconds": KEPT_S, "deadline_seconds": WEEK_S, **wishes.terms, **told}),
        )


def refuse_taken(items: Iterable[Planned], state: State, output: Output) -> Iterator[Planned]:
    """Raises BadInput for an item whose file is there already, and from elsewhere."""
    exists = output.exist()
    for one in items:
        if not state.is_planned(one.name) and exists(one.name):
            raise BadInput(
                f"{one.place}: {one.name} is there already, and from elsewhere; take another --out, or say --overwrite"
            )
        yield one


def _values(position: int, label: str, custom_id: str, request: Mapping[str, Any]) -> dict[str, str | int]:
    return {
        "index": position,
        "custom_id": custom_id,
        "source": label,
        "voice": _text(request.get("voice"), "default"),
        "model": _text(request.get("model"), "default"),
        "ext": extension_of(_text(request.get("response_format"), "wav")),
    }


def _text(value: object, otherwise: str) -> str:
    """What is no text is for the server to refuse, or to understand."""
    return value if isinstance(value, str) and value else otherwise
