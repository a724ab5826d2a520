from collections.abc import Iterator

import pytest

from speechmill.api import farm as farm_module
from speechmill.infra.embedded import EmbeddedS3, EmbeddedValkey
from speechmill.infra.objects import ObjectStore

from . import test_farm
from .test_farm import Bench


@pytest.fixture(scope="module")
def store(s3: EmbeddedS3) -> ObjectStore:
    return ObjectStore(s3.bucket, s3.endpoint_url, s3.access_key, s3.secret_key)


@pytest.fixture
def bench(
    valkey: EmbeddedValkey, s3: EmbeddedS3, store: ObjectStore, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Bench]:
    monkeypatch.setattr(test_farm, "ObjectStore", lambda *_: store)  # making one takes a second
    monkeypatch.setattr(farm_module, "make_objects", lambda _: store)
    bench = Bench(valkey, s3, prefix)
    yield bench
    bench.client.close()
