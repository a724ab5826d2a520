"""One sequence that the engine holds: what it is to be, how far it is computed, and its pages."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b

import numpy as np

from speechmill.models.common.engine.model import Codes, Columns, FrameModel, Request
from speechmill.models.common.paged_kv import content_names


@dataclass(slots=True, eq=False)
class Held:
    """The columns are the prompt's and one for each frame; all but the last are computed before the next frame."""

    slot: int
    request: Request
    names: list[bytes]
    """Of the prompt's full pages that are prefilled as such."""
    codes: list[Codes]
    """Frames made so far, one row each."""
    pages: list[int] = field(default_factory=list)
    computed: int = 0
    """Positions whose keys and values stand in the pages."""
    seated: bool = False
    """The slot's state on the device is this sequence's."""
    served: tuple[int, int] = (0, 0)
    """Number of the last step that it was in, and how urgent it was there: the greater the more."""

    @classmethod
    def begin(cls, slot: int, request: Request, codes: Codes, page: int) -> "Held":
        heard = blake2b(request.vectors.tobytes(), digest_size=16).digest() if len(request.vectors) else b""
        names = content_names(request.prompt[:, :-1], page, heard)
        return cls(slot, request, names, [row[None] for row in codes])

    def extend(self, beside: Sequence[int], complete: bool) -> None:
        """More of the second track."""
        self.request = replace(self.request, beside=(*self.request.beside, *beside), complete=complete)

    @property
    def prefilled(self) -> int:
        """Positions at the beginning that are computed in tiles; those after them are computed one by one."""
        return int(self.request.prompt.shape[1]) - 1

    @property
    def length(self) -> int:
        return self.prefilled + 1 + len(self.codes)

    @property
    def left(self) -> int:
        """Positions to compute before the next frame can be made."""
        return self.length - 1 - self.computed

    @property
    def waits(self) -> bool:
        """The next frame, or one made before, lacks what stands beside it."""
        return not self.request.complete and len(self.request.beside) <= len(self.codes)

    def made(self, model: FrameModel) -> Codes:
        return np.concatenate([np.empty((0, model.codes), np.uint16), *self.codes])

    def columns(self, model: FrameModel) -> Columns:
        return np.concatenate([self.request.prompt, model.columns(self.request, self.made(model))], axis=1)
