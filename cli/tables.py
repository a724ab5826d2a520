"""Records of a farm for people and for scripts: a table on a terminal, else tab-separated lines, or JSON."""

import json
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

Columns = Mapping[str, Callable[[Any], object]]
"""Titles, and what of a record stands below them."""


_CONTROLS = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\u202a-\\u202e\\u2066-\\u2069]")
"""What a terminal would obey, and what turns the order of its text."""


def show_table(records: Iterable[Any], columns: Columns, as_json: bool) -> None:
    """One line for each record; JSON has all of it."""
    if as_json:
        for record in records:
            print_json(record)
    elif sys.stdout.isatty():
        _print_table(records, columns)
    else:
        for record in records:
            print("\t".join(_cell(of(record)) for of in columns.values()), flush=True)


def print_json(record: Any) -> None:
    print(json.dumps(record, ensure_ascii=False), flush=True)


def show_deleted(name: str, told: Any, as_json: bool) -> None:
    """`told`: the farm's answer."""
    if as_json:
        print_json(told)
    else:
        sys.stderr.write(f"deleted {name}\n")


def _print_table(records: Iterable[Any], columns: Columns) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for number, title in enumerate(columns):  # what records are called by is there to be copied
        table.add_column(title, overflow="fold", no_wrap=number == 0)
    for record in records:
        table.add_row(*(Text(_cell(of(record))) for of in columns.values()))
    Console().print(table)


def _cell(value: object) -> str:
    return "-" if value is None or value == "" else " ".join(_harmless(str(value)).split())


def _harmless(text: str) -> str:
    """Names and messages are other people's."""
    return _CONTROLS.sub(" ", text)


def show_fields(record: Mapping[str, Any], as_json: bool) -> None:
    """One record, a line for each field that says something."""
    if as_json:
        print_json(record)
        return
    for name, value in record.items():
        if value not in (None, "", [], {}):
            shown = moment(value) if name.endswith("_at") else value
            text = shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)
            print(f"{name}\t{_harmless(text)}")


def moment(unix_s: int | None) -> str | None:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(unix_s)) if unix_s else None
