"""Where a model's weights are: a folder that the settings name, or a snapshot in this machine's Hugging Face cache.

Reads no tensor, imports nothing heavy.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from speechmill.models.registry import cards


def find_checkpoint(model: str, named: Mapping[str, Path]) -> Path | None:
    """The folder of a model's weights; None where this machine has none."""
    return named.get(model) or _cached(model)


def _cached(model: str) -> Path | None:
    """As `hf download` leaves it: models--<owner>--<name>/snapshots/<revision>, the newest named by refs/main."""
    folder = _cache() / f"models--{model.replace('/', '--')}"
    try:
        revision = (folder / "refs" / "main").read_text().strip()
    except OSError:
        return None
    snapshot = folder / "snapshots" / revision
    return snapshot if snapshot.is_dir() else None


def _cache() -> Path:
    """https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables"""
    if cache := os.environ.get("HF_HUB_CACHE"):
        return Path(cache)
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "huggingface"
    return Path(home) / "hub"


def recognise(folder: Path) -> str:
    """Id of the model whose checkpoint a folder holds. Raises LookupError, in one line."""
    try:
        kind = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("model_type")
    except (OSError, ValueError, AttributeError) as error:
        raise LookupError(f"{folder} holds no checkpoint: config.json cannot be read ({error})") from None
    for card in cards().values():
        if kind in card.model_types:
            return card.id
    known = ", ".join(name for card in cards().values() for name in card.model_types)
    raise LookupError(f"{folder} is a checkpoint of {kind!r}, which nothing here speaks from; known: {known}")
