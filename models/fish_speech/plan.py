"""From a task to what the engine is asked for: the prompt, its settings and its budget."""

from collections.abc import Mapping

from speechmill.models.common.draws import stream_key
from speechmill.models.common.engine.engine import Engine
from speechmill.models.common.engine.model import Request
from speechmill.models.common.engine.stage import read_codes
from speechmill.models.common.params import most_likely, number
from speechmill.models.fish_speech.codec.features import unpack
from speechmill.models.fish_speech.config import TalkerConfig
from speechmill.models.fish_speech.prompt import PromptBuilder, Spoken, safe
from speechmill.models.stage import StageTask

TEMPERATURE, TOP_P, TOP_K = 0.8, 0.8, 30
"""As upstream's server has them."""
MAX_FRAMES = 2048


class Planner:
    """Turns tasks into requests."""

    def __init__(self, config: TalkerConfig, prompts: PromptBuilder, engine: Engine) -> None:
        self._config, self._prompts, self._engine = config, prompts, engine

    def plan(self, task: StageTask) -> Request:
        """Raises ValueError, in a line for the client, for a text or reference that the model cannot take."""
        history = [Spoken(safe(text), read_codes(payload, self._config.codebooks)) for text, payload in task.history]
        prompt = self._prompts.build(safe(task.text), self._references(task), history)
        room = self._engine.longest(prompt.shape[1])
        wanted = int(number(task.params, "max_new_tokens", MAX_FRAMES)) or room
        return Request(
            prompt=prompt,
            key=stream_key(task.seed, task.take, task.segment),
            settings=_settings(task.params),
            max_frames=min(wanted, room),
        )

    def _references(self, task: StageTask) -> list[Spoken]:
        features = task.assets.get("features")
        if features is None:
            return []
        words = task.params.get("ref_text")
        if not isinstance(words, str) or not words.strip():
            raise ValueError("the words of the reference recording are missing")
        codes = unpack(features).T
        if codes.shape[1] != self._config.codebooks or codes.max(initial=0) >= self._config.codebook:
            raise ValueError("the reference was encoded for another model")
        return [Spoken(safe(words), codes)]


def _settings(params: Mapping[str, object]) -> tuple[float, ...]:
    return (
        number(params, "temperature", TEMPERATURE),
        number(params, "top_p", TOP_P),
        most_likely(params, "top_k", TOP_K),
        number(params, "repetition_penalty", 1.0),
    )
