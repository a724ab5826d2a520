"""`manifest.jsonl`: a line for each item that has ended, once."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from speechmill.cli.submit.rows import Row


def shown(row: Row) -> dict[str, Any]:
    """An item as the manifest and `--json` tell it; `file` only where there is one."""
    return {
        "custom_id": row.custom_id,
        "index": row.position,
        "source": row.place,
        "file": row.name if row.status == "succeeded" else None,
        "status": row.status,
        "job_id": row.job,
        "duration_ms": row.duration_ms,
        "sha256": row.sha256,
        "bytes": row.bytes,
        "seed": row.seed,
        "finish_reason": row.finish_reason,
        "error": row.error,
    }


def dump_rows(rows: Iterable[Row]) -> str:
    return "".join(json.dumps(shown(row), ensure_ascii=False) + "\n" for row in rows)


class Manifest:
    """Written anew when a call begins and ends, and added to in between, each time in one write."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def rewrite(self, rows: Iterable[Row]) -> None:
        """Whoever reads it finds either the old lines or the new ones."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.path.with_name(f"{self.path.name}.part")
        with fresh.open("w", encoding="utf-8") as file:
            for row in rows:
                file.write(dump_rows([row]))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.path)

    def add(self, rows: Iterable[Row]) -> None:
        if text := dump_rows(rows):
            with self.path.open("ab", buffering=0) as file:
                file.write(text.encode())
