"""A headless Chromium for tests, and the page's elements in it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

SECOND_MODEL = "k2-fsa/OmniVoice"
"""Of the pages' farms, beside hibari."""
CHROMIUM = Path("/usr/bin/chromium")
FLAGS = (
    "--autoplay-policy=no-user-gesture-required",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
)


@contextmanager
def chromium() -> Iterator[Browser]:
    """With a profile of its own; it ends with the block. Skips the test where there is no Chromium."""
    if not CHROMIUM.exists():
        pytest.skip(f"{CHROMIUM} is missing: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS), chromium_sandbox=False)
        yield browser
        browser.close()


def number(page: Page, figure: str) -> int:
    """What the machine-readable side of one of the page's figures says."""
    return int(page.locator(f"#{figure}").get_attribute("value") or 0)


def await_played(page: Page) -> None:
    """Until everything was received and the player has stopped by itself at its end."""
    page.wait_for_function(
        """() => document.getElementById("status").textContent.includes("of speech")
               && document.getElementById("received").value === document.getElementById("played").value
               && document.getElementById("play").ariaLabel === "Play" """
    )
