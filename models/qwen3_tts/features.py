"""What the model knows of a reference: a file of `encode`, or of a voice that was computed beforehand.

Both are safetensors with `speaker_embedding`, floats of any size and shape, and for in-context cloning `ref_code`,
integers [frames, codebooks], so that what the farm derived from a recording can be served as a precomputed voice too.
"""

from dataclasses import dataclass

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from speechmill.models.stage import StageTask

_EMBEDDING, _CODES = "speaker_embedding", "ref_code"
_TIMBRE_ONLY = "xvec"
FOREIGN = "the reference was encoded for another model"


@dataclass(frozen=True, slots=True)
class Reference:
    """How the speaker sounds, and what was said."""

    embedding: Tensor
    """float32 [width]."""
    codes: Tensor | None
    """int64 [frames, codebooks]; None where only the timbre is taken over."""


def pack(reference: Reference) -> bytes:
    """Codes must be below 2¹⁵."""
    tensors = {_EMBEDDING: reference.embedding.contiguous()}
    if reference.codes is not None:
        tensors[_CODES] = reference.codes.to(torch.int16).contiguous()
    return safetensors.torch.save(tensors)


def unpack(payload: bytes) -> Reference:
    """Raises ValueError for anything else."""
    try:
        tensors = safetensors.torch.load(payload)
    except (SafetensorError, KeyError, ValueError) as error:
        raise ValueError(f"no features of qwen3_tts: {error}") from None
    embedding, codes = tensors.get(_EMBEDDING), tensors.get(_CODES)
    if embedding is None or not embedding.is_floating_point() or not embedding.numel():
        raise ValueError(f"features of qwen3_tts without a {_EMBEDDING}")
    vector = embedding.float().flatten()
    if not vector.isfinite().all():
        raise ValueError(f"{_EMBEDDING} holds values that are no numbers")
    return Reference(vector, None if codes is None else _checked(codes))


def _checked(codes: Tensor) -> Tensor:
    if codes.is_floating_point() or codes.dim() != 2 or not codes.numel() or int(codes.min()) < 0:
        raise ValueError(f"{_CODES} holds no frames of codes")
    return codes.long()


def read_reference(task: StageTask, codebooks: int, entries: int) -> Reference | None:
    """What a task brings of a reference, without codes where it asks for the timbre alone.

    Raises ValueError, in a line for the client, for codes that are not of `codebooks` codebooks with `entries` each.
    """
    payload = task.assets.get("features")
    if payload is None:
        return None
    reference = unpack(payload)
    if reference.codes is None or task.params.get("voice_mode") == _TIMBRE_ONLY:
        return Reference(reference.embedding, None)
    if reference.codes.shape[1] != codebooks or int(reference.codes.max()) >= entries:
        raise ValueError(FOREIGN)
    return reference
