from collections.abc import Iterator
from pathlib import Path

import pytest

from speechmill.infra.embedded import EmbeddedS3, EmbeddedValkey
from speechmill.infra.keys import new_id

from .harness import Farm


@pytest.fixture
def farm(valkey: EmbeddedValkey, s3: EmbeddedS3, prefix: str, tmp_path: Path) -> Iterator[Farm]:
    """A farm without roles; the test starts what it needs."""
    farm = Farm(valkey, s3, prefix, tmp_path)
    yield farm
    farm.stop()


@pytest.fixture(scope="package")
def served(valkey: EmbeddedValkey, s3: EmbeddedS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    """A whole farm with an API, for tests that leave it as it is."""
    farm = Farm(valkey, s3, new_id("t"), tmp_path_factory.mktemp("served"))
    farm.start_api()
    farm.start_worker()
    farm.await_ready()
    yield farm
    farm.stop()
