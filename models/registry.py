"""Finds the model folders and answers which card a name means. Reads TOML only; a stage is loaded on demand."""

import tomllib
from functools import cache
from importlib import import_module, resources

from speechmill.models.card import ModelCard
from speechmill.models.stage import Stage, StageOptions


@cache
def cards() -> dict[str, ModelCard]:
    """Every card found, by model id."""
    found: dict[str, ModelCard] = {}
    for folder in sorted(resources.files("speechmill.models").iterdir(), key=lambda entry: entry.name):
        card_file = folder / "model.toml"
        if card_file.is_file():
            card = ModelCard.model_validate(tomllib.loads(card_file.read_text(encoding="utf-8")))
            found[card.id] = card
    return found


def load_stage(card: ModelCard, stage: str, options: StageOptions) -> Stage:
    """Import the family and load one of its stages, weights included."""
    family = import_module(f"speechmill.models.{card.family}.stages")
    loaded: Stage = family.load(stage, options)
    return loaded
