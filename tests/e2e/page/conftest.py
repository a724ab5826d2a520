"""One browser and one farm for each module, and the page loaded in it."""

import json
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect

from speechmill.infra.embedded import EmbeddedS3, EmbeddedValkey
from speechmill.infra.keys import new_id

from ..harness import Farm
from .browser import SECOND_MODEL, chromium

OF_THE_BROWSER = re.compile("the server responded|ERR_INTERNET")
"""Console lines that a browser writes of its own about answers that are errors."""


@pytest.fixture(scope="module")
def served(valkey: EmbeddedValkey, s3: EmbeddedS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    """A farm with a second model, which clones, is a tone and has no workers at first."""
    farm = Farm(valkey, s3, new_id("t"), tmp_path_factory.mktemp("served"))
    farm.settings["SPEECHMILL_MODELS"] = json.dumps(["hibari", SECOND_MODEL])
    farm.settings["SPEECHMILL_TEST__STAND_IN"] = "true"
    farm.start_api()
    farm.start_worker()
    farm.await_ready()
    yield farm
    farm.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def page(browser: Browser, served: Farm) -> Iterator[Page]:
    """The page, loaded. Whatever it writes to the console as an error fails the test."""
    page = browser.new_page(base_url=served.base)
    faults: list[str] = []

    def note(message: ConsoleMessage) -> None:
        if message.type == "error" and not OF_THE_BROWSER.search(message.text):
            faults.append(message.text)

    page.on("console", note)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto("/")
    expect(page.locator("#model")).to_have_value("hibari")
    yield page
    page.close()
    assert not faults
