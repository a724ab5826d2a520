"""The stages of Fish Speech S2 Pro: `encode` (recording → codes), `talker` (text → codes), `codec` (codes → s16le)."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from speechmill.models.common.device import make_stage, talker_dtype
from speechmill.models.common.draws import CounterDraws
from speechmill.models.common.engine.engine import Engine, EngineOptions
from speechmill.models.common.engine.runner import MakeDraws
from speechmill.models.common.engine.stage import TalkerStage
from speechmill.models.common.folder import build, find_source
from speechmill.models.fish_speech.codec.config import read_config as read_codec_config
from speechmill.models.fish_speech.codec.stages import codec_stage, encode_stage
from speechmill.models.fish_speech.config import TalkerConfig, read_config
from speechmill.models.fish_speech.plan import Planner
from speechmill.models.fish_speech.prompt import PromptBuilder
from speechmill.models.fish_speech.talker import Talker
from speechmill.models.fish_speech.tokenizer import Tokenizer
from speechmill.models.fish_speech.weights import internal_name
from speechmill.models.stage import Stage, StageOptions, StageTask

_WARM_TASK = StageTask("warm", 0, 0, "Warm.", "default", 0, params={"max_new_tokens": 4})


@dataclass(frozen=True, slots=True)
class Voice:
    """What a checkpoint folder holds for the talker."""

    config: TalkerConfig
    prompts: PromptBuilder
    talker: Talker
    weights_bytes: int


def load(name: str, options: StageOptions) -> Stage:
    """Raises as `make_stage` does."""
    return make_stage({"talker": _talker, "codec": codec_stage, "encode": encode_stage}, name, options)


def _talker(options: StageOptions) -> TalkerStage:
    limit = read_codec_config(options.folder).quantizer.codebook_size
    voice = read_voice(options.folder, torch.device(options.device), limit)
    return talker_stage(voice, EngineOptions(options.slots))


def read_voice(folder: Path, device: torch.device, residual_limit: int = 0) -> Voice:
    """`residual_limit`: see `TalkerConfig`.

    Raises CannotLoad in one line.
    """
    dtype = talker_dtype(device)
    config = replace(read_config(folder), residual_limit=residual_limit)
    tokenizer = Tokenizer(folder, config.vocabulary)
    first = tokenizer.first_semantic(config.semantic, config.codebook)
    make = partial(Talker, config, first, tokenizer.end, dtype)
    talker, weights_bytes = build(make, find_source(folder), internal_name, device, dtype)
    return Voice(config, PromptBuilder(tokenizer, first, config.codebooks), talker, weights_bytes)


def talker_stage(voice: Voice, options: EngineOptions, draws: MakeDraws = CounterDraws) -> TalkerStage:
    """`draws`: where the random numbers of a step come from."""
    engine = Engine(voice.talker, options, draws)
    return TalkerStage(engine, Planner(voice.config, voice.prompts, engine).plan, _WARM_TASK, voice.weights_bytes)
