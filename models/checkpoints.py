"""Where a model's weights are: a folder that the settings name, or a snapshot in this machine's Hugging Face cache.

Finding one reads no tensor and imports nothing heavy.
"""

import json
import os
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from speechmill.models.card import ModelCard
from speechmill.models.registry import cards, has_engine


def folder_named(name: str) -> Path | None:
    """The folder that a user means by a name; None for what can only be a model's id.

    Raises LookupError, in one line, for what is written as a path and leads to no folder.
    """
    path = Path(name).expanduser()
    if path.is_dir():
        return path
    owner, slash, rest = name.partition("/")
    as_path = name.startswith((".", "~")) or (slash and (not owner or not rest or "/" in rest or Path(owner).is_dir()))
    if name not in cards() and as_path:
        raise LookupError(f"no such folder: {name}")
    return None


def find_checkpoint(model: str, named: Mapping[str, Path]) -> Path | None:
    """The folder of a model's weights; None where this machine has none."""
    return named.get(model) or _cached(model)


def check_checkpoint(model: str, folder: Path) -> list[str]:
    """What keeps a folder from being used, a line each; empty if nothing does. Raises LookupError without an engine."""
    family = cards()[model].family
    if not has_engine(cards()[model]):
        raise LookupError(f"{folder} is a checkpoint of {model}, for which this version has no engine")
    findings: list[str] = import_module(f"speechmill.models.{family}.check").check(folder)
    return list(dict.fromkeys(findings))  # a file that two parts are read from is at fault once


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
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        kind = config.get("model_type")
    except (OSError, ValueError, AttributeError) as error:
        raise LookupError(f"{folder} holds no checkpoint: config.json cannot be read ({error})") from None
    able = [card for card in cards().values() if kind in card.model_types]
    for card in able:
        if all(config.get(name) == value for name, value in card.config.items()):
            return card.id
    if not able:
        known = ", ".join(dict.fromkeys(name for card in cards().values() for name in card.model_types))
        raise LookupError(f"{folder} is a checkpoint of {kind!r}, which nothing here speaks from; known: {known}")
    told = ", ".join(f"{name} {config.get(name)!r}" for name in able[0].config)
    raise LookupError(f"{folder} is a checkpoint of {kind!r}, but of none of its models here: {told}")


def described(card: ModelCard, named: Mapping[str, Path]) -> ModelCard:
    """The card as the checkpoint on this machine has it, of a family whose checkpoints differ in what they can.

    Raises LookupError, in one line, for a checkpoint that cannot be read.
    """
    folder, module = find_checkpoint(card.id, named), f"speechmill.models.{card.family}.description"
    if folder is None or find_spec(module) is None:
        return card
    told: ModelCard = import_module(module).describe(card, folder)
    return told
