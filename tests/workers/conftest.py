from collections.abc import Iterator

import pytest

from speechmill.infra.embedded import EmbeddedS3, EmbeddedValkey
from speechmill.models.registry import cards

from .toy import CARD, Make, ToyFarm


@pytest.fixture(autouse=True)
def card(monkeypatch: pytest.MonkeyPatch) -> None:
    """The toy is one of the models."""
    monkeypatch.setitem(cards(), CARD.id, CARD)


@pytest.fixture
def make(valkey: EmbeddedValkey, s3: EmbeddedS3, prefix: str) -> Iterator[Make]:
    """Makes farms of toys, with settings of the test's own."""
    farms: list[ToyFarm] = []

    def build(**sections: dict[str, object]) -> ToyFarm:
        farms.append(ToyFarm(valkey, s3, prefix, **sections))
        return farms[-1]

    yield build
    for farm in farms:
        farm.stop()
