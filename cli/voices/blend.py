"""`speechmill voices blend`: a speaker between two speakers of a folder."""

from pathlib import Path

import numpy as np

from speechmill.infra.errors import BadInput
from speechmill.infra.precomputed_folder import EMBEDDING, add_voice, has_voice, speaker_of
from speechmill.infra.tensors import write_tensor
from speechmill.models.common.speakers import lerp, slerp

FAMILY = "qwen3_tts"
"""The one whose speakers are a single vector."""


def blend(folder: Path, first: str, second: str, name: str, weight: float, arc: bool) -> Path:
    """Writes the voice into the same folder and answers its file. Raises BadInput in one line."""
    if has_voice(folder, FAMILY, name):
        raise BadInput(f"{folder} has a voice {name!r} already: give the blend another --name")
    one, other = (speaker_of(folder, FAMILY, each) for each in (first, second))
    if one.shape != other.shape:
        raise BadInput(f"{first} and {second} are of models of different sizes: {one.size} and {other.size} numbers")
    between = (slerp if arc else lerp)(one, other, weight)
    if not np.isfinite(between).all():
        raise BadInput(f"there is nothing between {first} and {second}")
    return add_voice(folder, FAMILY, name, "xvec", "", write_tensor(EMBEDDING, between))
