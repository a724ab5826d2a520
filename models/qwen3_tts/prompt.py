"""The one place where prompts are put together: who speaks, in which language, and how the text runs beside the codes.

Text is either all there before the first frame, or its first token is and each frame brings the next.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from speechmill.models.common.engine.model import NO_VECTORS, Codes, Columns, Vectors
from speechmill.models.common.growing_text import GrowingText
from speechmill.models.qwen3_tts.columns import FIRST, NONE, VECTOR, frame_columns, text_columns
from speechmill.models.qwen3_tts.config import TalkerConfig
from speechmill.models.qwen3_tts.tokenizer import Tokenizer

AUTO, CHINESE = "auto", "chinese"


@dataclass(frozen=True, slots=True)
class Spoken:
    """A text and the codes [frames, groups] of somebody speaking it."""

    text: str
    codes: Codes


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be spoken, and by whom."""

    text: str
    text_first: bool
    """All of the text stands before the first frame."""
    language: str = ""
    """"" for the model to find out."""
    speaker: str = ""
    """One of the checkpoint's own."""
    vectors: Vectors = field(default_factory=lambda: NO_VECTORS)
    """How the speaker sounds [1, talker width], where a vector says so."""
    instructions: str = ""
    reference: Spoken | None = None
    """What the model is to go on from."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """Columns up to the first frame, and the text that runs beside the frames."""

    columns: Columns
    beside: tuple[int, ...]
    text_tokens: int
    """Of what is to be spoken."""


class PromptBuilder:
    """Prompts for one checkpoint."""

    def __init__(self, tokenizer: Tokenizer, config: TalkerConfig) -> None:
        self._tokenizer, self._config = tokenizer, config

    def build(self, asked: Asked) -> Prompt:
        """Raises ValueError, in a line for the client, for an unknown speaker or language and for an empty text."""
        prompt = self.begin(asked, self._words(asked.text), complete=True)
        assert prompt is not None
        return prompt

    def begin(self, asked: Asked, content: Sequence[int], complete: bool) -> Prompt | None:
        """The same with the first tokens of a text, or `complete` with all of them; None where they are too few yet.

        More tokens never change the columns, if the text runs beside the frames. Raises ValueError as `build` does.
        """
        if not content and complete:
            raise ValueError("the text holds nothing to speak")
        text, codec, heard = self._config.text, self._config.codec, asked.reference
        words = [*content, *[text.eos] * complete]
        if heard is not None:
            words = [*self._words(heard.text), *words]
            if not complete and len(words) <= len(heard.codes):
                return None
            body, beside = self._continued(words, heard.codes, asked.text_first)
        elif not content:
            return None
        elif asked.text_first:
            body, beside = self._read_first(words), []
        else:
            body, beside = self._columns(words[:1], codec.bos), words[1:]
        parts = [self._instructions(asked.instructions), self._role("assistant"), self._tags(asked), body]
        return Prompt(np.concatenate(parts, axis=1), tuple(beside), len(content))

    def extend(self, prompt: Prompt, content: Sequence[int], complete: bool) -> Prompt:
        """What `begin` makes of more tokens, or of the last ones, once it has made a prompt of those before."""
        more = [*content, *[self._config.text.eos] * complete]
        return replace(prompt, beside=(*prompt.beside, *more), text_tokens=prompt.text_tokens + len(content))

    def _instructions(self, instructions: str) -> Columns:
        words = self._words(instructions)
        if not words:
            return self._columns([])
        return np.concatenate([self._role("user"), self._columns([*words, self._config.text.end, *self._line])], axis=1)

    def _role(self, name: str) -> Columns:
        return self._columns([self._config.text.start, *self._tokenizer.encode(name), *self._line])

    def _tags(self, asked: Asked) -> Columns:
        """How to begin, in which language, and who speaks."""
        text, codec = self._config.text, self._config.codec
        language = self._language(asked)
        tags = [codec.nothink] if language is None else [codec.think]
        tags += [codec.think_bos, *([] if language is None else [language]), codec.think_eos]
        if len(asked.vectors):
            tags.append(NONE)
        elif asked.speaker:
            tags.append(self._speaker(asked.speaker))
        columns = self._columns([*[text.pad] * len(tags), text.bos], [*tags, codec.pad])
        columns[VECTOR, columns[FIRST] == NONE] = 0
        return columns

    def _speaker(self, name: str) -> int:
        speakers = self._config.speakers
        if name.casefold() not in speakers:
            raise ValueError(f"there is no speaker {name!r}; this model has {', '.join(speakers) or 'none'}")
        return speakers[name.casefold()]

    def _language(self, asked: Asked) -> int | None:
        """A dialect stands for Chinese where the speaker has one."""
        name = asked.language.casefold() or AUTO
        if name in (AUTO, CHINESE):
            name = self._config.dialects.get(asked.speaker.casefold(), name)
        if name == AUTO:
            return None
        if name not in self._config.languages:
            raise ValueError(f"there is no language {name!r}; this model speaks {', '.join(self._config.languages)}")
        return self._config.languages[name]

    def _read_first(self, words: Sequence[int]) -> Columns:
        text, codec = self._config.text, self._config.codec
        return np.concatenate([self._columns(words, codec.pad), self._columns([text.pad], codec.bos)], axis=1)

    def _continued(self, words: Sequence[int], codes: Codes, text_first: bool) -> tuple[Columns, Sequence[int]]:
        """The text of the reference and what follows it, over the codes of the reference; and what is left of it."""
        text, codec = self._config.text, self._config.codec
        heard = len(codes) + 1
        over, beside = [*words[:heard], *[text.pad] * (heard - len(words))], words[heard:]
        if text_first:
            over, beside = [text.pad] * heard, []
        spoken = [self._columns(over[:1], codec.bos), frame_columns(codes, over[1:])]
        read = [self._columns(words, codec.pad)] if text_first else []
        return np.concatenate([*read, *spoken], axis=1), beside

    def growing(self) -> GrowingText:
        """Gives out a text in pieces whose tokens are those of the whole."""
        return self._tokenizer.growing()

    def tokens(self, piece: str) -> list[int]:
        """Of one such piece."""
        return self._tokenizer.encode(piece)

    def _words(self, text: str) -> list[int]:
        """A text that begins or ends with blanks would be merged with what stands around it."""
        return self._tokenizer.encode(text.strip())

    @property
    def _line(self) -> list[int]:
        return self._tokenizer.encode("\n")

    def _columns(self, text: Sequence[int], first: Sequence[int] | int = NONE) -> Columns:
        return text_columns(text, self._config.groups, first)
