"""Finds the model folders and answers which card a name means. Reads TOML only; a stage is loaded on demand."""

import json
import tomllib
from collections.abc import Iterable
from functools import cache
from importlib import import_module, resources
from pathlib import Path

from speechmill.models.card import ModelCard, read_cards
from speechmill.models.stage import Stage, StageOptions


@cache
def cards() -> dict[str, ModelCard]:
    """Every card found, by model id."""
    found: dict[str, ModelCard] = {}
    for folder in sorted(resources.files("speechmill.models").iterdir(), key=lambda entry: entry.name):
        card_file = folder / "model.toml"
        if card_file.is_file():
            for card in read_cards(tomllib.loads(card_file.read_text(encoding="utf-8"))):
                found[card.id] = card
    return found


def served(models: Iterable[str]) -> tuple[ModelCard, ...]:
    """The cards of models that are to be served. Raises LookupError, in one line, for one that is unknown."""
    known = cards()
    for name in models:
        if name not in known:
            raise LookupError(f"unknown model {name!r}; known: {', '.join(known)}")
    return tuple(known[name] for name in models)


def require(card: ModelCard, checkpoint: Path | None) -> None:
    """Raises LookupError, in one line, for a model that this version cannot compute here."""
    if not has_engine(card):
        raise LookupError(f"model {card.id!r} has a card but no engine in this version; test.stand_in gives it a tone")
    if checkpoint is not None and not checkpoint.is_dir():
        raise LookupError(f"model {card.id!r}: no such folder: {checkpoint}")
    if checkpoint is None and not card.own_weights:
        given = f"give its folder, as --model or in checkpoints.{json.dumps(card.id)}"
        raise LookupError(f"model {card.id!r} needs its checkpoint: hf download {card.id}, or {given}")


def has_engine(card: ModelCard) -> bool:
    """Whether this version can compute the model, or only knows its card."""
    return (resources.files("speechmill.models") / card.family / "stages.py").is_file()


def load_stage(card: ModelCard, stage: str, options: StageOptions) -> Stage:
    """Import the family and load one of its stages, weights included. Raises CannotLoad in one line."""
    family = import_module(f"speechmill.models.{card.family}.stages")
    loaded: Stage = family.load(stage, options)
    return loaded
