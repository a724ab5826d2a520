from collections.abc import Iterator

import pytest

from speechmill.infra.embedded import EmbeddedS3, EmbeddedValkey

from .toy import Make, ToyFarm


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
