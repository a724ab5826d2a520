"""Continuous batching: sequences join and leave between frames, prompts are computed in pieces beside others' frames.

Pages are given to the most urgent first. Who has to give them up loses nothing but time: what a sequence needs to go on
is its prompt and its codes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from speechmill.models.common.draws import CounterDraws
from speechmill.models.common.engine.held import Held
from speechmill.models.common.engine.model import Codes, FrameModel, Made, Request
from speechmill.models.common.engine.runner import MakeDraws, Runner
from speechmill.models.common.engine.sizing import affordable_pages
from speechmill.models.common.paged_kv import PagedKv, PagePool


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Sizes of an engine."""

    slots: int
    page: int = 64
    """Positions in a page; also the tile in which prompts are computed, and what sequences can share."""
    pages: int = 0
    """0: as many as memory allows and the slots can use."""
    chunk: int = 256
    """Columns of prompts that one step computes at most."""


class TooLong(ValueError):
    """A request does not fit the model or the pages; the text says by how much."""


class Engine:
    """Slots are the caller's numbers, 0 to `slots` - 1."""

    def __init__(self, model: FrameModel, options: EngineOptions, draws: MakeDraws = CounterDraws) -> None:
        self.model = model
        self._options = options
        pages = 1 + (options.pages or affordable_pages(model.kv, options.page, options.slots, model.positions))
        self._cache = PagedKv(model.kv, pages, options.page)
        self._pool = PagePool(pages)
        self._runner = Runner(model, self._cache, options.slots, options.chunk, draws)
        self._held: dict[int, Held] = {}
        self._steps = 0

    @property
    def cache_bytes(self) -> int:
        """Of all keys and values, whoever they belong to."""
        return self._cache.keys.nbytes + self._cache.values.nbytes

    def capture(self) -> None:
        """Record what can be recorded; once, before the first request."""
        self._runner.capture()

    @property
    def room(self) -> int:
        """Positions that one sequence can have."""
        return min(self.model.positions, self._pool.size * self._options.page)

    def longest(self, prompt: int) -> int:
        """Frames that can follow a prompt of so many columns. Raises TooLong if none can."""
        if prompt > self.room:
            raise TooLong(f"the prompt takes {prompt} positions and there is room for {self.room}")
        return self.room - prompt + 1  # the last frame needs no position of its own

    def open(self, slot: int, request: Request, codes: Codes) -> None:
        """Begin in a free slot, or go on after `codes`. Raises TooLong."""
        assert 0 <= slot < self._options.slots
        frames = max(request.max_frames, len(codes))
        if frames > self.longest(request.prompt.shape[1]):
            raise TooLong(f"a prompt of {request.prompt.shape[1]} positions leaves no room for {frames} frames")
        self._ensure_track(len(request.beside))
        self._held[slot] = Held.begin(slot, request, codes, self._options.page)

    def extend(self, slot: int, beside: Sequence[int], complete: bool = False) -> None:
        """More of a request's second track, and whether that is all of it. Raises TooLong."""
        held = self._held[slot]
        start = len(held.request.beside)
        self._ensure_track(start + len(beside))
        held.extend(beside, complete)
        if held.seated:
            self._runner.set_beside(slot, beside, start)

    def _ensure_track(self, length: int) -> None:
        if length > self.model.beside:
            raise TooLong(f"{length} tokens stand beside the frames; at most {self.model.beside} can")

    def waits(self, slot: int) -> bool:
        """Whether the slot's next frame lacks what stands beside it: until `extend` a step does not bring it on."""
        return self._held[slot].waits

    def close(self, slot: int) -> None:
        """Free the slot if it is taken."""
        held = self._held.pop(slot, None)
        if held is not None:
            self._pool.release(held.pages)

    def audit(self) -> None:
        """Raises AssertionError if a page is lost."""
        self._pool.audit(page for held in self._held.values() for page in held.pages)

    def step(self, slots: Sequence[int]) -> list[Made]:
        """At most one frame of each of `slots`, the most urgent first; none of those whose prompt is not through."""
        self._steps += 1
        batch = [self._held[slot] for slot in slots]
        for place, held in enumerate(batch):
            held.served = self._steps, -place
        ready = list(self._ready(batch))
        if not ready:
            return []
        for held in ready:
            if not held.seated:
                self._runner.seat(held)
                held.seated = True
        rows = self._runner.frame([held.slot for held in ready], [held.length for held in ready])
        return [self._account(held, row) for held, row in zip(ready, rows, strict=True)]

    def _account(self, held: Held, row: Sequence[int]) -> Made:
        ended, *codes = row
        if ended:
            return Made(held.slot, ())
        held.codes.append(np.array([codes], np.uint16))
        held.computed += 1
        return Made(held.slot, codes)

    def _ready(self, batch: Sequence[Held]) -> Iterator[Held]:
        """Bring prompts on, and yield those whose next frame can be made."""
        budget = self._options.chunk
        for place, held in enumerate(batch):
            giving = self._giving(batch, place)
            while held.left and budget > 0 and not held.waits:
                done = self._compute(held, budget, giving)
                if not done:
                    break
                budget -= done
            if not held.left and not held.waits and self._hold(held, held.length, giving):
                yield held

    def _giving(self, batch: Sequence[Held], place: int) -> list[Held]:
        """Who gives up pages for the batch's sequence at `place`, the first one first: whoever rests longest."""
        chosen = {held.slot for held in batch}
        resting = [held for held in self._held.values() if held.slot not in chosen]
        resting.sort(key=lambda held: held.served)
        return [*resting, *reversed(batch[place + 1 :])]

    def _compute(self, held: Held, budget: int, giving: Sequence[Held]) -> int:
        """Bring one sequence on by at most `budget` columns; how many were computed, 0 if none could or need be.

        What another has computed is shared and costs nothing.
        """
        self._share(held)
        end = self._reach(held, budget)
        if end <= held.computed or not self._hold(held, end, giving):
            return 0
        columns = held.columns(self.model)[:, held.computed : end]
        if held.computed < held.prefilled:
            self._runner.prefill(held.pages, columns, held.computed, held.request.vectors)
        else:
            self._runner.replay(held.slot, columns, held.computed)
        held.computed = end
        self._name(held)
        return int(columns.shape[1])

    def _reach(self, held: Held, budget: int) -> int:
        """Where a piece of at most `budget` columns ends. Tiles of a prompt are whole, wherever it is cut."""
        end = held.computed + budget
        if held.computed >= held.prefilled:
            return min(end, held.length - 1)
        return held.prefilled if end >= held.prefilled else end - end % self._options.page

    def _share(self, held: Held) -> None:
        """Take over pages whose content has been computed before."""
        page = self._options.page
        while held.computed == len(held.pages) * page and len(held.pages) < len(held.names):
            shared = self._pool.share(held.names[len(held.pages)])
            if shared is None:
                break
            held.pages.append(shared)
            held.computed += page
            self._runner.set_pages(held.slot, held.pages)

    def _name(self, held: Held) -> None:
        """Let others share the prompt's pages that are complete."""
        for page, name in zip(held.pages, held.names[: held.computed // self._options.page], strict=False):
            self._pool.name(page, name)

    def _hold(self, held: Held, length: int, giving: Sequence[Held]) -> bool:
        """Have pages for `length` positions, at the expense of others if need be."""
        wanted = self._cache.pages_for(length) - len(held.pages)
        if wanted <= 0:
            return True
        for other in giving:
            if self._pool.available >= wanted:
                break
            self._preempt(other)
        if self._pool.available < wanted:
            return False
        held.pages += [self._pool.take() for _ in range(wanted)]
        self._runner.set_pages(held.slot, held.pages)
        return True

    def _preempt(self, held: Held) -> None:
        self._pool.release(held.pages)
        held.pages = []
        held.computed = 0
        held.seated = False
