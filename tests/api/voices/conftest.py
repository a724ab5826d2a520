from collections.abc import Iterator

import pytest

from speechmill.api import farm as farm_module
from speechmill.configs.settings import ApiKey, Settings, load
from speechmill.infra.embedded import EmbeddedValkey
from speechmill.infra.objects import ObjectStore

from .server import BASE, CUSTOM, FISH, KEYS, SMALL_BASE, Server


@pytest.fixture
def settings(valkey: EmbeddedValkey, store: ObjectStore, prefix: str, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setattr(farm_module, "make_objects", lambda settings: store)
    settings = load().model_copy(deep=True)
    settings.redis.control_url, settings.redis.prefix = valkey.url, prefix
    settings.models, settings.test.stand_in = (CUSTOM, BASE, SMALL_BASE, FISH, "hibari"), True
    settings.auth.enabled = True
    settings.auth.keys = (
        ApiKey(key=KEYS["a"], project="a"),
        ApiKey(key=KEYS["b"], project="b"),
        ApiKey(key=KEYS["reader"], project="a", scopes=("voices:read",)),
        ApiKey(key=KEYS["speaker"], project="a", scopes=("speech",)),
    )
    return settings


@pytest.fixture
def server(settings: Settings) -> Iterator[Server]:
    server = Server(settings)
    server.client.load()
    yield server
    server.client.close()
