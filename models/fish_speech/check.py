"""Whether a folder is a checkpoint that the model can be loaded from, told without reading a tensor."""

from pathlib import Path

import torch

from speechmill.models.common.checkpoint import CheckpointError, Inspection
from speechmill.models.fish_speech.config import TalkerConfig, read_config
from speechmill.models.fish_speech.talker import Talker
from speechmill.models.fish_speech.tokenizer import Tokenizer
from speechmill.models.fish_speech.weights import find_source, internal_name

CODEC = "codec.pth"


def check(folder: Path) -> list[str]:
    """What keeps the folder from being used, a line each; empty if nothing does."""
    if not folder.is_dir():
        return [f"{folder} is no folder"]
    findings = [] if (folder / CODEC).is_file() else [f"{folder / CODEC} is missing"]
    try:
        config = read_config(folder)
        findings += _tensors(folder, config, *_tokens(folder, config))
    except CheckpointError as error:
        findings.append(str(error))
    return findings


def _tokens(folder: Path, config: TalkerConfig) -> tuple[int, int]:
    """Ids of the first semantic token and of the end."""
    tokenizer = Tokenizer(folder)
    return tokenizer.first_semantic(config.semantic, config.codebook), tokenizer.end


def _tensors(folder: Path, config: TalkerConfig, semantic: int, end: int) -> list[str]:
    """Builds the talker out of shapes alone."""
    inspection = Inspection(find_source(folder), internal_name)
    Talker(config, inspection, semantic, end, torch.device("meta"), torch.float32)
    return inspection.findings
