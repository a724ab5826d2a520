"""The stages of Qwen3-TTS: `encode` (recording → features), `talker` (text → codes), `codec` (codes → s16le)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from speechmill.models.common.device import make_stage, talker_dtype
from speechmill.models.common.draws import CounterDraws
from speechmill.models.common.engine.engine import Engine, EngineOptions
from speechmill.models.common.engine.runner import MakeDraws
from speechmill.models.common.engine.stage import TalkerStage
from speechmill.models.common.folder import build, find_source
from speechmill.models.qwen3_tts.codec.stages import codec_stage, encode_stage
from speechmill.models.qwen3_tts.config import TalkerConfig, ensure_codec_fits, read_config
from speechmill.models.qwen3_tts.plan import Planner
from speechmill.models.qwen3_tts.prompt import PromptBuilder
from speechmill.models.qwen3_tts.sampling import Sampling, read_sampling
from speechmill.models.qwen3_tts.talker import Talker, internal_name
from speechmill.models.qwen3_tts.tokenizer import Tokenizer
from speechmill.models.stage import Stage, StageOptions, StageTask


@dataclass(frozen=True, slots=True)
class Voice:
    """What a checkpoint folder holds for the talker."""

    config: TalkerConfig
    sampling: Sampling
    prompts: PromptBuilder
    talker: Talker
    weights_bytes: int


def load(name: str, options: StageOptions) -> Stage:
    """Raises as `make_stage` does."""
    return make_stage({"talker": _talker, "codec": codec_stage, "encode": encode_stage}, name, options)


def _talker(options: StageOptions) -> TalkerStage:
    voice = read_voice(options.folder, torch.device(options.device))
    return talker_stage(voice, EngineOptions(options.slots), live=options.live_chunks)


def read_voice(folder: Path, device: torch.device) -> Voice:
    """Raises CannotLoad in one line."""
    dtype = talker_dtype(device)
    config = read_config(folder)
    ensure_codec_fits(config, folder)
    prompts = PromptBuilder(Tokenizer(folder, config.text_vocabulary), config)
    make = partial(Talker, config, dtype)
    talker, weights_bytes = build(make, find_source(folder), internal_name, device, dtype)
    return Voice(config, read_sampling(folder), prompts, talker, weights_bytes)


def talker_stage(
    voice: Voice, options: EngineOptions, draws: MakeDraws = CounterDraws, live: Sequence[int] = ()
) -> TalkerStage:
    """`draws`: where the random numbers of a step come from; `live`: see `TalkerStage`."""
    engine = Engine(voice.talker, options, draws)
    planner = Planner(voice.config, voice.sampling, voice.prompts, engine)
    return TalkerStage(engine, planner.plan, _warm_task(voice.config), voice.weights_bytes, live, planner.plan_open)


def _warm_task(config: TalkerConfig) -> StageTask:
    """Of a checkpoint that clones, like a silent vector."""
    params = {"max_new_tokens": 5, "speaker_embedding": [0.0] * config.talker.width}
    return StageTask("warm", 0, 0, "Warm.", "default", 0, params=params)
