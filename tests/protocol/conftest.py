"""A farm of the test's own. When the test is over, its counters must agree with its records."""

from collections.abc import Iterator

import pytest

from speechmill.infra.client import Client
from speechmill.infra.embedded import EmbeddedValkey
from speechmill.infra.keys import Keys

from .farm import Farm


@pytest.fixture
def farm(valkey: EmbeddedValkey, prefix: str) -> Iterator[Farm]:
    client = Client(valkey.url, valkey.url, Keys(prefix))
    client.load()
    farm = Farm(client)
    yield farm
    farm.assert_counters_agree()
    for name in farm.names("*"):
        farm.server.delete(name)
    client.close()
