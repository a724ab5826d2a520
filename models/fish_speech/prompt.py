"""The one place where prompts are put together, and where a text is cut into turns and batches of them.

A prompt is a matrix [1 + codebooks, length]: token ids, and under the semantic tokens the codes of their frames. Every
line of it is encoded by itself: a call over two would merge what the model was trained to see apart.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from speechmill.models.common.engine.model import Codes, Columns
from speechmill.models.fish_speech.columns import frame_columns
from speechmill.models.fish_speech.tokenizer import Tokenizer

SYSTEM = "convert the provided text to speech"
SYSTEM_LIKE = "convert the provided text to speech reference to the following:\n\nText:\n"
SPEECH = "\n\nSpeech:\n"
END = "<|im_end|>\n"
ANSWER = "<|im_start|>assistant\n<|voice|>"
MAX_TURNS = 5
"""In one batch."""
_SPEAKER = re.compile(r"<\|speaker:\d+\|>")
_OLD_SPEAKER = re.compile(r"<speaker:(\d+)>")
_CONTROL = re.compile(r"<\|[^|]*\|>")


@dataclass(frozen=True, slots=True)
class Spoken:
    """A text and the codes [frames, codebooks] of somebody speaking it."""

    text: str
    codes: Codes


class PromptBuilder:
    """Prompts for one tokenizer and one number of codebooks."""

    def __init__(self, tokenizer: Tokenizer, semantic: int, codebooks: int) -> None:
        """`semantic`: id of the first semantic token."""
        self._tokenizer, self._semantic, self._codebooks = tokenizer, semantic, codebooks

    def build(self, text: str, references: Sequence[Spoken] = (), history: Sequence[Spoken] = ()) -> Columns:
        """Everything up to where the model begins to speak `text`. `history`: turns that it has spoken already."""
        parts = [self._system(references)]
        for turn in history:
            parts += [self._user(turn.text), frame_columns(turn.codes, self._semantic), self._text(END)]
        return np.concatenate([*parts, self._user(text)], axis=1)

    def _system(self, references: Sequence[Spoken]) -> NDArray[np.int64]:
        opening = self._text("<|im_start|>system\n")
        if not references:
            return np.concatenate([opening, self._text(SYSTEM), self._text(END)], axis=1)
        words = "\n".join(_tagged(reference.text, number) for number, reference in enumerate(references))
        heard = frame_columns(np.concatenate([each.codes for each in references]), self._semantic)
        parts = [opening, *map(self._text, (SYSTEM_LIKE, words, SPEECH)), heard, self._text(END)]
        return np.concatenate(parts, axis=1)

    def _user(self, text: str) -> NDArray[np.int64]:
        return np.concatenate([self._text(part) for part in ("<|im_start|>user\n", text, END, ANSWER)], axis=1)

    def _text(self, text: str) -> NDArray[np.int64]:
        ids = self._tokenizer.encode(text)
        columns = np.zeros((1 + self._codebooks, len(ids)), np.int64)
        columns[0] = ids
        return columns


def _tagged(text: str, number: int) -> str:
    return text if _SPEAKER.search(text) else f"<|speaker:{number}|>{text}"


def safe(text: str) -> str:
    """Text as the model may see it: older speaker tags in today's form. Raises ValueError for any other control token.

    The tokenizer would take it for a real one.
    """
    text = _OLD_SPEAKER.sub(r"<|speaker:\1|>", text)
    for found in _CONTROL.findall(text):
        if not _SPEAKER.fullmatch(found):
            raise ValueError(f"{found} is a control token; only <|speaker:N|> may stand in the text")
    return text


def split_turns(text: str) -> list[str]:
    """Each speaker tag with what follows it, stripped. What stands before the first tag is dropped, as by upstream."""
    starts = [match.start() for match in _SPEAKER.finditer(text)]
    return [text[start:end].strip() for start, end in pairwise([*starts, len(text)])]


def batches(text: str, chunk_bytes: int) -> list[str]:
    """A text as upstream speaks it, one batch after the other: turns packed up to `chunk_bytes` of UTF-8 and 5 turns.

    A text without speaker tags is one batch, whatever its length. The farm cuts before a text comes here
    (`infra.segments.pack`); this is what makes upstream's conversations of the golden files.
    """
    turns = split_turns(text)
    if not turns:
        return [text]
    packed: list[list[str]] = [[]]
    for turn in turns:
        size = sum(len(each.encode()) for each in packed[-1])
        if packed[-1] and (len(packed[-1]) == MAX_TURNS or size + len(turn.encode()) > chunk_bytes):
            packed.append([])
        packed[-1].append(turn)
    return ["\n".join(batch) for batch in packed]
