"""The stages of Qwen3-TTS: `encode` (recording → features), `talker` (text → codes), `codec` (codes → s16le)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from speechmill.models.common.device import usable_device
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
    """Raises KeyError for a stage that there is not, CannotLoad in one line for a checkpoint that does not fit."""
    usable_device(options.device)
    torch.set_num_threads(options.threads)
    stages: dict[str, Callable[[StageOptions], Stage]] = {
        "talker": _talker,
        "codec": codec_stage,
        "encode": encode_stage,
    }
    return stages[name](options)


def _talker(options: StageOptions) -> TalkerStage:
    ensure_codec_fits(options.folder)
    voice = read_voice(options.folder, torch.device(options.device))
    return talker_stage(voice, EngineOptions(options.slots), live=options.live_chunks)


def read_voice(folder: Path, device: torch.device) -> Voice:
    """In bfloat16 on a GPU and in float32 on a CPU. Raises CannotLoad in one line."""
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    config = read_config(folder)
    prompts = PromptBuilder(Tokenizer(folder, config.text_vocabulary), config)
    make = partial(Talker, config, dtype)
    talker, weights_bytes = build(make, find_source(folder), internal_name, device, dtype)
    return Voice(config, read_sampling(folder), prompts, talker, weights_bytes)


def talker_stage(
    voice: Voice, options: EngineOptions, draws: MakeDraws = CounterDraws, live: Sequence[int] = ()
) -> TalkerStage:
    """`draws`: where the random numbers of a step come from; `live`: see `TalkerStage`."""
    engine = Engine(voice.talker, options, draws)
    memory = {"weights": voice.weights_bytes, "keys and values": engine.cache_bytes}
    planner = Planner(voice.config, voice.sampling, voice.prompts, engine)
    return TalkerStage(engine, planner.plan, _warm_task(voice.config), memory, live, planner.plan_open)


def _warm_task(config: TalkerConfig) -> StageTask:
    """Of a checkpoint that clones, like a silent vector."""
    params = {"max_new_tokens": 5, "speaker_embedding": [0.0] * config.talker.width}
    return StageTask("warm", 0, 0, "Warm.", "default", 0, params=params)
