"""Dense layers whose rows do not know each other.

On a CPU in float32 a row's result is the same bits however many rows stand beside it, so that a sequence is spoken
alike alone, in a batch, and when it is computed again to go on after an interruption. MKL's plain products do not give
that: they sum in another order for another number of rows. oneDNN's with packed weights do from two rows on, and read
the weights at the speed of memory. Elsewhere callers that need it keep to a fixed number of rows.
"""

from typing import cast

import torch
from torch import Tensor
from torch.nn import functional as fn

from speechmill.models.common.checkpoint import Reader


class Linear:
    """rows [n, in] → [n, out]."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        """`weight`: [out, in]; `bias`: [out]."""
        self.width, self.inputs = weight.shape
        self.bias = bias
        self._packed = weight.device.type == "cpu" and weight.dtype == torch.float32 and _can_pack()
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, None) if self._packed else weight

    @classmethod
    def read(cls, weights: Reader, name: str, outputs: int, inputs: int, bias: bool = False) -> "Linear":
        """Of a checkpoint's `name.weight`, and `name.bias` where the model has one."""
        weight = weights.take(f"{name}.weight", (outputs, inputs))
        return cls(weight, weights.take(f"{name}.bias", (outputs,)) if bias else None)

    def __call__(self, rows: Tensor) -> Tensor:
        if not self._packed:
            return fn.linear(rows, self._weight, self.bias)
        if len(rows) == 1:
            return self._multiply(rows.repeat(2, 1))[:1]
        return self._multiply(rows)

    def _multiply(self, rows: Tensor) -> Tensor:
        product = torch.ops.mkldnn._linear_pointwise(rows, self._weight, self.bias, "none", [], "")
        return cast(Tensor, product)


def _can_pack() -> bool:
    available: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return available and hasattr(torch.ops.mkldnn, "_linear_pointwise")
