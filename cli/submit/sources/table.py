"""`.csv` and `.tsv`: a header, and one item per row."""

import csv
from collections.abc import Iterable, Iterator

from speechmill.cli.submit.sources.fields import item_of_cells
from speechmill.cli.submit.sources.item import Item
from speechmill.cli.submit.sources.lines import MOST_LINE_BYTES
from speechmill.infra.errors import BadInput

DELIMITERS = (",", ";", "\t")


def read_table(lines: Iterable[str], name: str, ignore_unknown: bool) -> Iterator[Item]:
    """Comma, semicolon or tab: whichever the header has most of. Raises BadInput with the row's last line."""
    csv.field_size_limit(MOST_LINE_BYTES)
    remaining = iter(lines)
    header = next(remaining, "")
    delimiter = max(DELIMITERS, key=header.count)
    rows = csv.reader(_joined(header, remaining), delimiter=delimiter, strict=True)
    try:
        columns = [column.strip() for column in next(rows, [])]
        _check_header(columns, name)
        for row in rows:
            if any(cell.strip() for cell in row):
                where = f"{name}:{rows.line_num}"
                if len(row) > len(columns):
                    raise BadInput(f"{where}: {len(row)} cells, but the header has {len(columns)}")
                yield item_of_cells(dict(zip(columns, row, strict=False)), where, ignore_unknown)
    except csv.Error as error:
        raise BadInput(f"{name}:{rows.line_num}: {error}") from None


def _joined(header: str, rest: Iterator[str]) -> Iterator[str]:
    yield header
    yield from rest


def _check_header(columns: list[str], name: str) -> None:
    if not {"input", "text"} & set(columns):
        raise BadInput(f"{name}:1: the header names no column `text` or `input`")
    twice = sorted({column for column in columns if columns.count(column) > 1})
    if twice:
        raise BadInput(f"{name}:1: the header names {twice[0]!r} twice")
