"""Text that arrives bit by bit → pieces that a tokenizer turns into the same tokens as the whole text."""

import unicodedata
from collections.abc import Callable, Sequence

Span = tuple[int, int]


class GrowingText:
    """Gives out what no further text can change, in pieces that begin and end between pre-tokens.

    It suits tokenizers whose pre-tokens are found from left to right by a regular expression that looks no further than
    the next character, or in whitespace than its end, such as those of GPT-2, Llama 3, Qwen 2 and Tekken. Control
    tokens must not be looked for in the text: one that is cut is none.
    """

    def __init__(self, normalise: Callable[[str], str], pre_tokens: Callable[[str], Sequence[Span]]) -> None:
        """`pre_tokens`: where they lie in a normalised text, in order and without holes."""
        self._normalise = normalise
        self._pre_tokens = pre_tokens
        self._held = ""

    def feed(self, text: str, final: bool = False) -> str:
        """What is certain now and was not given out before, normalised; all of the rest where nothing follows."""
        held = self._normalise(self._held + text)
        cut = len(held) if final else settled(held, self._pre_tokens(held))
        self._held = held[cut:]
        return held[:cut]


def settled(text: str, pre_tokens: Sequence[Span]) -> int:
    """Characters of a normalised text that are cut into tokens alike whatever follows, and also without what follows.

    Never behind whitespace, which is cut by what comes after it.
    """
    borders = (end for _, end in reversed(pre_tokens) if end < len(text) and not text[end - 1].isspace())
    return next((at for at in borders if not _joins(text[at])), 0)


def _joins(character: str) -> bool:
    """Whether it may still become one with the character before it."""
    return unicodedata.category(character).startswith("M")
