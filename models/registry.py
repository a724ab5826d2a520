"""Finds the model folders and answers which card a name means. Reads TOML only; a stage is loaded on demand."""

import json
import tomllib
from collections.abc import Container, Iterable
from functools import cache
from importlib import import_module, resources

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


def served(models: Iterable[str], checkpoints: Container[str], stand_in: bool) -> tuple[ModelCard, ...]:
    """The cards of models that are to be served. `checkpoints`: models whose weights are to be had; `stand_in`: one
    that cannot be computed is spoken as a tone.

    Raises LookupError, in one line, for a model that is unknown or that nothing here computes.
    """
    known, chosen = cards(), []
    for name in models:
        if name not in known:
            raise LookupError(f"unknown model {name!r}; known: {', '.join(known)}")
        if not stand_in and not is_computed(known[name], checkpoints):
            raise LookupError(_lack(known[name]))
        chosen.append(known[name])
    return tuple(chosen)


def is_computed(card: ModelCard, checkpoints: Container[str]) -> bool:
    """Whether this version has an engine for the model, and the weights are to be had."""
    return _has_engine(card) and (card.own_weights or card.id in checkpoints)


def _has_engine(card: ModelCard) -> bool:
    return (resources.files("speechmill.models") / card.family / "stages.py").is_file()


def _lack(card: ModelCard) -> str:
    if _has_engine(card):
        return f"model {card.id!r} needs a checkpoint: checkpoints.{json.dumps(card.id)} names its folder"
    return f"model {card.id!r} has a card but no engine in this version; test.stand_in gives it a tone"


def load_stage(card: ModelCard, stage: str, options: StageOptions) -> Stage:
    """Import the family and load one of its stages, weights included. Raises CannotLoad in one line."""
    family = import_module(f"speechmill.models.{card.family}.stages")
    loaded: Stage = family.load(stage, options)
    return loaded
