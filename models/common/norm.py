"""Root-mean-square norm."""

import torch
from torch import Tensor
from torch.nn import functional as fn


def rms_norm(rows: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Over the last dimension, of which `weight` has the size; it may have more, to differ between heads.

    Computed in float32 and cast back before the weight is applied, as Llama and its kin were trained.
    """
    if rows.dtype == torch.float32:
        return fn.rms_norm(rows, rows.shape[-1:], eps=eps) * weight
    return fn.rms_norm(rows.float(), rows.shape[-1:], eps=eps).to(rows.dtype) * weight
