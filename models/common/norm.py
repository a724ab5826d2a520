"""Root-mean-square norm."""

import torch
from torch import Tensor
from torch.nn import functional as fn


def rms_norm(rows: Tensor, weight: Tensor, eps: float, cast_last: bool = False) -> Tensor:
    """Over the last dimension, of which `weight` has the size; it may have more, to differ between heads.

    Computed in float32 and cast back before the weight is applied, as Llama and its kin were trained; `cast_last`:
    after it, as PyTorch's own norm does.
    """
    if rows.dtype == torch.float32:
        return fn.rms_norm(rows, rows.shape[-1:], eps=eps) * weight
    normed = fn.rms_norm(rows.float(), rows.shape[-1:], eps=eps)
    return (normed * weight).to(rows.dtype) if cast_last else normed.to(rows.dtype) * weight
