"""From a task to what the engine is asked for: the prompt, its settings and its budget."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from speechmill.models.common.draws import stream_key
from speechmill.models.common.engine.engine import Engine
from speechmill.models.common.engine.model import Request, Vectors
from speechmill.models.common.params import most_likely, number
from speechmill.models.qwen3_tts.config import BASE, CUSTOM_VOICE, TalkerConfig
from speechmill.models.qwen3_tts.description import default_voice
from speechmill.models.qwen3_tts.features import read_reference
from speechmill.models.qwen3_tts.prompt import Asked, Prompt, PromptBuilder, Spoken
from speechmill.models.qwen3_tts.sampling import Sampling
from speechmill.models.stage import StageTask

FRAMES_OF_A_TOKEN, LEAST_BUDGET = 12, 192
"""A second of speech for each token of text, and at least fifteen: who speaks longer has lost the way."""


class Planner:
    """Turns tasks into requests."""

    def __init__(self, config: TalkerConfig, sampling: Sampling, prompts: PromptBuilder, engine: Engine) -> None:
        self._config, self._sampling, self._prompts, self._engine = config, sampling, prompts, engine

    def plan(self, task: StageTask) -> Request:
        """Raises ValueError, in a line for the client, for a text or reference that the model cannot take."""
        asked = self._asked(task)
        return self.request(task, asked, self._prompts.build(asked), complete=True)

    def plan_open(self, task: StageTask) -> "OpenText":
        """Raises ValueError for a reference that the model cannot take."""
        return OpenText(self, self._prompts, task, self._asked(task))

    def request(self, task: StageTask, asked: Asked, prompt: Prompt, complete: bool) -> Request:
        """`complete`: the prompt has all of the text. Until then nobody knows how long that may take, and nobody has
        to where the caller says it.
        """
        allowed = min(self._allowed(task.params), self._engine.longest(prompt.columns.shape[1]))
        enough = max(LEAST_BUDGET, FRAMES_OF_A_TOKEN * prompt.text_tokens)
        guessed = complete and task.params.get("max_new_tokens") is None
        return Request(
            prompt=prompt.columns,
            key=stream_key(task.seed, task.take, task.segment),
            settings=self._settings(task.params),
            max_frames=min(allowed, enough) if guessed else allowed,
            vectors=asked.vectors,
            beside=prompt.beside,
            rest=self._config.text.pad,
            complete=complete,
            end_expected=guessed and enough <= allowed,
        )

    def _allowed(self, params: Mapping[str, object]) -> int:
        """Of so many tokens the last is never more than an end, as upstream counts; of one there still is a frame."""
        return max(int(number(params, "max_new_tokens", self._sampling.max_new_tokens)) - 1, 1)

    def _settings(self, params: Mapping[str, object]) -> tuple[float, ...]:
        own = self._sampling
        return (
            number(params, "temperature", own.temperature),
            number(params, "top_p", own.top_p),
            most_likely(params, "top_k", own.top_k),
            number(params, "repetition_penalty", own.repetition_penalty),
            number(params, "subtalker_temperature", own.sub_temperature),
            number(params, "subtalker_top_p", own.sub_top_p),
            most_likely(params, "subtalker_top_k", own.sub_top_k),
        )

    def _asked(self, task: StageTask) -> Asked:
        config, params = self._config, task.params
        text_first = params.get("non_streaming_mode")
        asked = Asked(
            text=task.text,
            text_first=not task.open and (config.kind != BASE if text_first is None else bool(text_first)),
            language=_text(params, "language"),
            instructions=_text(params, "instructions") if config.follows_instructions else "",
        )
        if config.kind == BASE:
            return self._cloned(asked, task)
        return replace(asked, speaker=self._speaker(task.voice)) if config.kind == CUSTOM_VOICE else asked

    def _speaker(self, name: str) -> str:
        return default_voice(self._config.speakers) if name in ("", "default") else name

    def _cloned(self, asked: Asked, task: StageTask) -> Asked:
        """By a vector that the request brings, or by what `encode` made of a recording."""
        vector = task.params.get("speaker_embedding")
        if isinstance(vector, Sequence):
            return replace(asked, vectors=self._vectors(np.array(vector, np.float32)))
        reference = read_reference(task, self._config.codebooks)
        if reference is None:
            raise ValueError("this model speaks like a recording or a speaker embedding, and has neither")
        asked = replace(asked, vectors=self._vectors(reference.embedding))
        if reference.codes is None:
            return asked
        words = _text(task.params, "ref_text")
        if not words.strip():
            raise ValueError("the words of the reference recording are missing")
        return replace(asked, reference=Spoken(words, reference.codes))

    def _vectors(self, embedding: Sequence[float] | NDArray[np.float32]) -> Vectors:
        width = self._config.talker.width
        if len(embedding) != width:
            raise ValueError(f"the speaker embedding has {len(embedding)} numbers; this model takes {width}")
        return np.array([embedding], np.float32)


class OpenText:
    """A text that is still being written: it runs beside the frames, whatever the checkpoint does with others."""

    def __init__(self, planner: Planner, prompts: PromptBuilder, task: StageTask, asked: Asked) -> None:
        self._planner, self._prompts, self._task, self._asked = planner, prompts, task, asked
        self._growing = prompts.growing()
        self._content: list[int] = []
        """Until they are enough for a prompt."""
        self._prompt: Prompt | None = None
        self._begun = False

    def feed(self, text: str, final: bool) -> Request | None:
        """More of it; see `OpenPlan`."""
        text = text if self._begun else text.lstrip()  # as a text that is complete is stripped
        self._begun = self._begun or bool(text)
        piece = self._growing.feed(text, final)
        tokens = self._prompts.tokens(piece.rstrip() if final else piece)
        if self._prompt is not None:
            self._prompt = self._prompts.extend(self._prompt, tokens, final)
        else:
            self._content += tokens
            self._prompt = self._prompts.begin(self._asked, self._content, final)
        return None if self._prompt is None else self._planner.request(self._task, self._asked, self._prompt, final)


def _text(params: Mapping[str, object], name: str) -> str:
    value = params.get(name)
    return value if isinstance(value, str) else ""
