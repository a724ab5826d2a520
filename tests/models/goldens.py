"""Golden files: what a family's reference implementation computed with small random weights."""

import json
import os
from functools import cached_property
from pathlib import Path
from typing import Any

from safetensors import safe_open
from torch import Tensor

ROOT = Path(os.environ.get("SPEECHMILL_GOLDENS", Path(__file__).parents[1] / "goldens"))


class Goldens:
    """One family's folder. Sizes and settings come from its files only."""

    def __init__(self, family: str) -> None:
        self.folder = ROOT / family

    @cached_property
    def cases(self) -> dict[str, Any]:
        cases: dict[str, Any] = json.loads((self.folder / "cases.json").read_text(encoding="utf-8"))
        return cases

    def of_kinds(self, *kinds: str) -> list[dict[str, Any]]:
        """Of a family whose cases are a list."""
        return [case for case in self.cases["cases"] if case["kind"] in kinds]

    def tensor(self, name: str) -> Tensor:
        """From the file `golden/FILE.safetensors` for a name `FILE:NAME`, else from whichever holds it; integers as
        int64.
        """
        place, _, name = name.rpartition(":")
        files = [self.folder / "golden" / f"{place}.safetensors"] if place else self.folder.glob("*.safetensors")
        for file in sorted(files):
            with safe_open(file, framework="pt") as opened:
                if name in opened.keys():  # noqa: SIM118 (not a mapping)
                    found: Tensor = opened.get_tensor(name)
                    return found if found.is_floating_point() else found.long()
        raise KeyError(name)
