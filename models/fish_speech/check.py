"""Whether a folder is a checkpoint that the model can be loaded from, told without reading a tensor."""

from functools import partial
from pathlib import Path

import torch

from speechmill.models.common.folder import find_source, finding_faults, inspect
from speechmill.models.fish_speech.codec import check as codec
from speechmill.models.fish_speech.config import read_config
from speechmill.models.fish_speech.talker import Talker
from speechmill.models.fish_speech.tokenizer import Tokenizer
from speechmill.models.fish_speech.weights import internal_name


def check(folder: Path) -> list[str]:
    """What keeps the folder from being used, a line each; empty if nothing does."""
    if not folder.is_dir():
        return [f"{folder} is no folder"]
    return [*_talker(folder), *codec.check(folder)]


@finding_faults
def _talker(folder: Path) -> list[str]:
    config = read_config(folder)
    tokenizer = Tokenizer(folder, config.vocabulary)
    first = tokenizer.first_semantic(config.semantic, config.codebook)
    make = partial(Talker, config, first, tokenizer.end, torch.float32)
    return inspect(make, find_source(folder), internal_name).findings
