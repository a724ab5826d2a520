"""Blocks of causal convolutions that neural codecs are made of. Rows are [streams, positions, channels]."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as fn

from speechmill.models.common.carry import Batch
from speechmill.models.common.convolution import CausalConvolution, DepthwiseConvolution
from speechmill.models.common.linear import Linear


class Snake:
    """x + sin²(alpha·x) / (beta + 1e-9), alpha and beta per channel (Ziyin et al. 2020; BigVGAN where they differ)."""

    def __init__(self, alpha: Tensor, beta: Tensor | None = None) -> None:
        """`alpha`, `beta`: as many values as channels, in any shape."""
        self.alpha = alpha.flatten()
        self.scale = ((self.alpha if beta is None else beta.flatten()) + 1e-9).reciprocal()

    def __call__(self, rows: Tensor) -> Tensor:
        # one new tensor: on a CPU fresh pages cost more than the arithmetic
        made = (rows * self.alpha).sin_().square_()
        return torch.addcmul(rows, made, self.scale, out=made)


@dataclass(frozen=True, slots=True)
class ResidualUnit:
    """x + narrow(snake(wide(snake(x)))), with a wide dilated convolution and a narrow one that sees one row."""

    first: Snake
    wide: CausalConvolution
    second: Snake
    narrow: CausalConvolution

    def __call__(self, rows: Tensor, batch: Batch) -> Tensor:
        """Overwrites `rows` with its answer."""
        return rows.add_(self.narrow(self.second(self.wide(self.first(rows), batch)), batch))


class ConvNeXt:
    """x + gamma·(W2·GELU(W1·norm(depthwise(x)))) with an exact GELU and a layer norm (Liu et al. 2022)."""

    EPS = 1e-6

    def __init__(
        self,
        depthwise: DepthwiseConvolution,
        norm: tuple[Tensor, Tensor],
        up: tuple[Tensor, Tensor],
        down: tuple[Tensor, Tensor],
        gamma: Tensor,
    ) -> None:
        """Pairs are weight and bias; `up` is [hidden, channels], `down` [channels, hidden]."""
        self.depthwise, self.norm, self.up = depthwise, norm, Linear(*up)
        self.down = Linear(gamma[:, None] * down[0], gamma * down[1])

    def __call__(self, rows: Tensor, batch: Batch) -> Tensor:
        mixed = self.depthwise(rows, batch)
        mixed = fn.layer_norm(mixed, mixed.shape[2:], *self.norm, self.EPS)
        return self.down(fn.gelu(self.up(mixed.flatten(0, 1)))).view_as(rows).add_(rows)
