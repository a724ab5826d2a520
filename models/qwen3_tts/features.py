"""What the model knows of a reference: a file of `encode`, or of a voice that was computed beforehand.

Both are safetensors with `speaker_embedding`, floats of any size and shape, and for in-context cloning `ref_code`,
integers [frames, codebooks], so that what the farm derived from a recording can be served as a precomputed voice too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import safetensors.numpy
import safetensors.torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from torch import Tensor

from speechmill.models.stage import StageTask

_EMBEDDING, _CODES = "speaker_embedding", "ref_code"
IN_CONTEXT, TIMBRE = "icl", "xvec"
"""Modes: with the recording's codes, or without."""


@dataclass(frozen=True, slots=True)
class Reference:
    """How the speaker sounds, and what was said."""

    embedding: NDArray[np.float32]
    """[width]."""
    codes: NDArray[np.uint16] | None
    """[frames, codebooks]; None where only the timbre is taken over."""


def pack(reference: Reference) -> bytes:
    tensors: dict[str, NDArray[Any]] = {_EMBEDDING: reference.embedding.astype("<f4")}
    if reference.codes is not None:
        tensors[_CODES] = reference.codes.astype("<i4")  # there are readers that know no unsigned ones
    return safetensors.numpy.save(tensors)


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
    return Reference(vector.numpy(), None if codes is None else _checked(codes))


def _checked(codes: Tensor) -> NDArray[np.uint16]:
    if codes.is_floating_point() or codes.dim() != 2 or not codes.numel():
        raise ValueError(f"{_CODES} holds no frames of codes")
    numbers = codes.long().numpy()
    if numbers.min() < 0 or numbers.max() >= 1 << 16:
        raise ValueError(f"{_CODES} holds numbers that are no codes")
    return numbers.astype(np.uint16)


def read_reference(task: StageTask, codebooks: Sequence[int]) -> Reference | None:
    """What a task brings of a reference, without codes where it asks for the timbre alone.

    `codebooks`: entries of each. Raises ValueError, in a line for the client, for codes that are not of these.
    """
    payload = task.assets.get("features")
    if payload is None:
        return None
    reference = unpack(payload)
    of_timbre = task.params.get("x_vector_only_mode") or task.params.get("voice_mode") == TIMBRE
    if reference.codes is None or of_timbre:
        return Reference(reference.embedding, None)
    if reference.codes.shape[1] != len(codebooks) or (reference.codes >= np.asarray(codebooks)).any():
        raise ValueError("the reference was encoded for another model")
    return reference
