"""Whether a folder is a checkpoint that the model can be loaded from, told without reading a tensor."""

from functools import partial
from pathlib import Path

import torch

from speechmill.models.common.folder import find_source, finding_faults, inspect
from speechmill.models.qwen3_tts.codec import check as codec
from speechmill.models.qwen3_tts.config import BASE, ensure_codec_fits, read_config
from speechmill.models.qwen3_tts.sampling import read_sampling
from speechmill.models.qwen3_tts.speaker import check as speaker
from speechmill.models.qwen3_tts.talker import Talker, internal_name
from speechmill.models.qwen3_tts.tokenizer import Tokenizer
from speechmill.models.stage import CheckpointError


def check(folder: Path) -> list[str]:
    """What keeps the folder from being used, a line each; empty if nothing does."""
    if not folder.is_dir():
        return [f"{folder} is no folder"]
    return [*check_talker(folder), *codec.check(folder), *_check_speaker(folder)] or _check_codes(folder)


@finding_faults
def check_talker(folder: Path) -> list[str]:
    """The same of the talker alone."""
    config = read_config(folder)
    Tokenizer(folder, config.text_vocabulary)
    read_sampling(folder)
    return inspect(partial(Talker, config, torch.float32), find_source(folder), internal_name).findings


@finding_faults
def _check_codes(folder: Path) -> list[str]:
    """Whether talker and codec, each of which is complete, belong together."""
    ensure_codec_fits(read_config(folder), folder)
    return []


def _check_speaker(folder: Path) -> list[str]:
    """Only checkpoints that clone have a speaker encoder."""
    try:
        config = read_config(folder)
    except CheckpointError:
        return []  # which the talker says
    return speaker.check(folder) if config.kind == BASE else []
