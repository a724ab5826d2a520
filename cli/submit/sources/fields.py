"""Columns and keys of a source as fields of the API (speech_api §1.1, §5.4.1)."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from speechmill.cli.submit.sources.item import Item
from speechmill.infra.errors import BadInput

ALIASES = {"text": "input", "format": "response_format"}
"""What people write for what the API calls otherwise."""
MAPS = ("metadata", "extra_params")
"""Objects; a column `metadata.chapter` is one pair of them."""


def _boolean(cell: str) -> bool:
    if cell.lower() in ("true", "yes", "1"):
        return True
    if cell.lower() in ("false", "no", "0"):
        return False
    raise ValueError(cell)


def _number(cell: str) -> float:
    return int(cell) if cell.lstrip("-").isdecimal() else float(cell)


def _whole(cell: str) -> int:
    return int(cell)


def _text(cell: str) -> str:
    return cell


Reader = Callable[[str], Any]
REQUEST: dict[str, Reader] = {
    "input": _text,
    "model": _text,
    "voice": _text,
    "instructions": _text,
    "response_format": _text,
    "sample_rate": _whole,
    "speed": _number,
    "seed": _whole,
    "language": _text,
    "task_type": _text,
    "ref_audio": _text,
    "ref_text": _text,
    "references": json.loads,
    "x_vector_only_mode": _boolean,
    "speaker_embedding": json.loads,
    "max_new_tokens": _whole,
    "non_streaming_mode": _boolean,
    "extra_params": json.loads,
    "duration_seconds": _number,
    "word_timestamps": _boolean,
    "split_text": _text,
    "segment_silence_ms": _whole,
}
"""Fields of a request, and how a cell of a table is read."""
TERMS: dict[str, Reader] = {
    "custom_id": _text,
    "metadata": json.loads,
    "priority": _text,
    "ttl_seconds": _whole,
    "deadline_seconds": _whole,
    "max_attempts": _whole,
}
"""Fields of a job around its request."""
KINDS = {"_whole": "a whole number", "_number": "a number", "_boolean": "true or false", "loads": "JSON"}


def item_of_cells(cells: Mapping[str, str], where: str, ignore_unknown: bool) -> Item:
    """Of one row of a table; an empty cell says nothing. Raises BadInput."""
    fields: dict[str, Any] = {}
    for column, cell in cells.items():
        if not cell.strip():
            continue
        name, _, key = column.partition(".")
        if name in MAPS and key:
            fields.setdefault(name, {})[key] = cell if name == "metadata" else _loose(cell)
        else:
            fields[column] = _cell(column, cell, where)
    return item_of(fields, where, ignore_unknown)


def _cell(column: str, cell: str, where: str) -> Any:
    reader = {**REQUEST, **TERMS}.get(ALIASES.get(column, column), _text)
    try:
        return reader(cell if reader is _text else cell.strip())
    except (ValueError, RecursionError):
        raise BadInput(f"{where}: {column} must be {KINDS[reader.__name__]}, not {cell[:40]!r}") from None


def _loose(cell: str) -> Any:
    """Numbers and booleans as such, all else as text: only the model knows what it takes."""
    try:
        return json.loads(cell)
    except (ValueError, RecursionError):
        return cell


def item_of(fields: Mapping[str, Any], where: str, ignore_unknown: bool) -> Item:
    """Of fields with the API's own types. Raises BadInput for unknown names, and where there is no text."""
    request: dict[str, Any] = {}
    terms: dict[str, Any] = {}
    for given, value in fields.items():
        name = ALIASES.get(given, given)
        part = request if name in REQUEST else terms if name in TERMS else None
        if part is None:
            if ignore_unknown:
                continue
            raise BadInput(f"{where}: {given!r} is no field of the API; --ignore-unknown leaves such ones out")
        if name in part:
            raise BadInput(f"{where}: {name} is given twice")
        part[name] = value
    return checked(Item(where, request, terms))


def checked(item: Item) -> Item:
    """What any request must have; the rest is for the server to say. Raises BadInput."""
    text, name = item.request.get("input"), item.terms.get("custom_id")
    if not isinstance(text, str) or not text.strip():
        raise BadInput(f"{item.where}: there is no text")
    if name is not None and not (isinstance(name, str) and 0 < len(name) <= 512):
        raise BadInput(f"{item.where}: custom_id must be a text of 1 to 512 characters")
    try:
        json.dumps([item.request, item.terms], ensure_ascii=False, allow_nan=False).encode()
    except ValueError:
        raise BadInput(f"{item.where}: it holds what is no valid Unicode or no finite number") from None
    return item
