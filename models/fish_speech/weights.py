"""What upstream calls the talker's tensors, whichever layout a checkpoint has."""

_TEXT = "text_model.model."
_AUDIO = "audio_decoder."


def internal_name(key: str) -> str | None:
    """Upstream's own name of a stored tensor; None for what is no part of the talker.

    The embeddings of all codebooks stand with the fast transformer and belong to the slow one's input.
    """
    if key.startswith(_TEXT):
        return key.removeprefix(_TEXT)
    if key.startswith(_AUDIO):
        name = key.removeprefix(_AUDIO)
        return name if name.startswith("codebook_embeddings.") else f"fast_{name}"
    return None if "audio_" in key else key.removeprefix("model.")
