"""Where a checkpoint keeps the talker's tensors, and what upstream calls them."""

from pathlib import Path

from speechmill.models.common.checkpoint import CheckpointError, Safetensors, Source, StateDict

_TEXT = "text_model.model."
_AUDIO = "audio_decoder."
_INDEX, _WHOLE, _PICKLED = "model.safetensors.index.json", "model.safetensors", "model.pth"


def find_source(folder: Path) -> Source:
    """The talker's tensors in a checkpoint folder. Raises CheckpointError if there are none."""
    for name in (_INDEX, _WHOLE):
        if (folder / name).is_file():
            return Safetensors(folder / name)
    if (folder / _PICKLED).is_file():
        return StateDict(folder / _PICKLED)
    raise CheckpointError(f"{folder} has none of {_INDEX}, {_WHOLE}, {_PICKLED}")


def internal_name(key: str) -> str | None:
    """Upstream's own name of a stored tensor, whichever layout the file has; None for what is no part of the talker.

    The embeddings of all codebooks stand with the fast transformer and belong to the slow one's input.
    """
    if key.startswith(_TEXT):
        return key.removeprefix(_TEXT)
    if key.startswith(_AUDIO):
        name = key.removeprefix(_AUDIO)
        return name if name.startswith("codebook_embeddings.") else f"fast_{name}"
    return None if "audio_" in key else key.removeprefix("model.")
