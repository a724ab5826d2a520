"""Where the text that a client writes goes: into units that are complete, or into one that is begun before it is."""

from collections.abc import Callable
from typing import Protocol

from speechmill.api.realtime.splitter import Splitter


class Texts(Protocol):
    """One utterance after the other."""

    @property
    def chars(self) -> int:
        """Of text that no unit has taken yet."""

    @property
    def pending(self) -> bool:
        """Whether there is text of an utterance that is not complete."""

    def feed(self, text: str) -> None:
        """More of the utterance."""

    def flush(self) -> None:
        """The utterance is complete."""

    def forget(self) -> None:
        """What is not complete is not spoken; the next text begins another utterance."""


class Split:
    """Texts whose units are spoken once they are complete."""

    def __init__(self, splitter: Splitter, speak: Callable[[str], object]) -> None:
        self._splitter, self._speak = splitter, speak

    @property
    def chars(self) -> int:
        return self._splitter.chars

    @property
    def pending(self) -> bool:
        return self._splitter.pending

    def feed(self, text: str) -> None:
        for unit in self._splitter.feed(text):
            self._speak(unit)

    def flush(self) -> None:
        for unit in self._splitter.flush():
            self._speak(unit)

    def forget(self) -> None:
        self._splitter.flush()
