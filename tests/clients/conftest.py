"""A farm as other people's clients meet it: OpenAI's model names, with and without keys."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest
from e2e.harness import START_S, Farm, eventually

from speechmill.cli.bench.farm import free_port
from speechmill.infra.embedded import EmbeddedS3, EmbeddedValkey
from speechmill.infra.keys import new_id

ALIASES = {name: {"model": "hibari", "profile": "openai"} for name in ("tts-1", "gpt-4o-mini-tts")}
KEY = "sk-of-a-test"


@dataclass(frozen=True, slots=True)
class Place:
    """Where clients find an API, and what they show there."""

    base: str
    key: str

    @property
    def v1(self) -> str:
        """What clients call the base URL."""
        return f"{self.base}/v1"


@pytest.fixture(scope="package")
def places(valkey: EmbeddedValkey, s3: EmbeddedS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Place]]:
    """A whole farm with two APIs, shared by all tests of clients; see `anywhere` and `guarded`."""
    farm = Farm(valkey, s3, new_id("t"), tmp_path_factory.mktemp("clients"))
    farm.settings["SPEECHMILL_ALIASES"] = json.dumps(ALIASES)
    farm.start_api()
    guarded = Place(f"http://127.0.0.1:{free_port()}", KEY)
    settings = ("auth.enabled=true", "auth.public_lists=false", f"auth.keys={json.dumps([{'key': KEY}])}")
    options = (part for setting in settings for part in ("--set", setting))
    farm.start("guarded", "api", "--port", guarded.base.rpartition(":")[2], *options)
    farm.start_worker()
    farm.await_ready()
    eventually(lambda: answers(guarded.base), START_S, "the second API is ready")
    yield [Place(farm.base, "none"), guarded]
    farm.stop()


def answers(base: str) -> bool:
    try:
        return httpx.get(f"{base}/health/ready", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


@pytest.fixture(scope="package")
def anywhere(places: list[Place]) -> Place:
    """Asks nobody for a key; clients that must have one show a word."""
    return places[0]


@pytest.fixture(scope="package")
def guarded(places: list[Place]) -> Place:
    """Asks for a key, also where models and voices are listed."""
    return places[1]
