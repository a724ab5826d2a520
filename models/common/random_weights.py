"""Weights of any model, left to chance: speed does not depend on them."""

import math
from collections.abc import Collection

import torch
from torch import Tensor

from speechmill.models.common.checkpoint import Shape


class RandomWeights:
    """A Reader that has every tensor: norms are ones, biases zeros, products keep the size of what goes through."""

    def __init__(self, seed: int, device: torch.device, dtype: torch.dtype, without: Collection[str] = ()) -> None:
        """`without`: keys that a release does not have, of those that may be spelt in more than one way."""
        self._generator = torch.Generator(device).manual_seed(seed)
        self._device, self._dtype, self._without = device, dtype, without

    def has(self, key: str) -> bool:
        return key not in self._without

    def take(self, key: str, shape: Shape) -> Tensor:
        if len(shape) == 1 or key.endswith("alpha"):
            value = 1.0 if key.endswith(("weight", "alpha")) else 0.0
            return torch.full(shape, value, dtype=self._dtype, device=self._device)
        tensor = torch.empty(shape, dtype=self._dtype, device=self._device)
        return tensor.normal_(0.0, 1 / math.sqrt(math.prod(shape[1:])), generator=self._generator)

    def at(self, prefix: str) -> "RandomWeights":
        return self
