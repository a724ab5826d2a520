"""Rotary position embedding (Su et al., arXiv:2104.09864), in both orders of the pairs.

A pair of channels is a complex number and a position turns it, so both orders are one complex product.
"""

from typing import Literal

import torch
from torch import Tensor

Pairs = Literal["interleaved", "half"]
"""Channels 2j and 2j+1 are a pair, or j and j + size/2."""


def frequencies(size: int, base: float) -> Tensor:
    """Radians per position of each pair, float32 [size / 2]."""
    return 1.0 / (base ** (torch.arange(0, size, 2, dtype=torch.float32) / size))


class Rope:
    """The turns of all positions of a model."""

    def __init__(
        self,
        positions: int,
        frequencies: Tensor,
        pairs: Pairs,
        rounded: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        """`rounded`: dtype through which sine and cosine go, as the model had them when it was trained."""
        angles = torch.outer(torch.arange(positions, dtype=torch.float32), frequencies)
        cosine, sine = (part.to(rounded).float() for part in (angles.cos(), angles.sin()))
        self._turns = torch.complex(cosine, sine).to(device)  # [positions, size / 2]
        self._pairs = pairs

    def at(self, positions: Tensor) -> Tensor:
        """Turns for rows at `positions` [n] → complex [n, 1, size / 2]."""
        return self._turns[positions][:, None]

    def turn(self, heads: Tensor, turns: Tensor) -> Tensor:
        """[n, heads, size] turned in float32 and cast back."""
        wide = heads.float()
        if self._pairs == "interleaved":
            pairs = torch.view_as_complex(wide.view(*wide.shape[:-1], -1, 2))
            return torch.view_as_real(pairs * turns).flatten(-2).to(heads.dtype)
        turned = torch.complex(*wide.chunk(2, dim=-1)) * turns
        return torch.cat([turned.real, turned.imag], dim=-1).to(heads.dtype)
