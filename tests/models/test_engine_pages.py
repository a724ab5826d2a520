"""The engine's pages, with a model that computes next to nothing: what comes, ends and gives way leaves none behind."""

import random
from collections import Counter

import numpy as np
import pytest
import torch
from torch import Tensor

from speechmill.models.common.attention import Attend
from speechmill.models.common.engine.engine import Engine, EngineOptions
from speechmill.models.common.engine.held import Held
from speechmill.models.common.engine.model import Codes, Columns, FrameRows, MadeFrames, Memory, Request
from speechmill.models.common.paged_kv import KvShape

PAGE, PAGES, SLOTS, ENDS = 4, 14, 8, 13


class Chain:
    """Each code follows from the one before, and some are ends; nobody looks at keys and values."""

    kv = KvShape(1, 1, 1, torch.float32, torch.device("cpu"))
    width = codes = settings = 1
    positions, beside = 64, 0

    def prefill(self, columns: Tensor, positions: Tensor, attend: Attend, vectors: Tensor) -> None:
        pass

    def frame(self, rows: FrameRows, attend: Attend) -> MadeFrames:
        codes = (31 * rows.columns + 7 + rows.positions[:, None]) % 1009
        return MadeFrames(codes, codes[:, 0] % ENDS == 0, codes, rows.memory)

    def columns(self, request: Request, codes: Codes) -> Columns:
        return codes.T.astype(np.int64)

    def memory(self, codes: Codes) -> Memory:
        return ()


def expected(asked: Request) -> list[int]:
    """What a request is to speak, up to its end."""
    code, made = int(asked.prompt[0, -1]), list[int]()
    for position in range(asked.prompt.shape[1] - 1, asked.prompt.shape[1] - 1 + asked.max_frames):
        code = (31 * code + 7 + position) % 1009
        if code % ENDS == 0:
            break
        made.append(code)
    return made


def request(chance: random.Random) -> Request:
    """A few beginnings are common to many."""
    begun, own = [chance.randrange(3)] * chance.randrange(20), chance.randrange(1009)
    return Request(np.array([[*begun, own]], np.int64), 0, (0.0,), chance.randint(1, 30))


def test_no_page_is_lost_in_ten_thousand_comings_ends_drops_and_preemptions(monkeypatch: pytest.MonkeyPatch) -> None:
    chance, counts = random.Random(1), Counter[str]()
    engine = Engine(Chain(), EngineOptions(SLOTS, page=PAGE, pages=PAGES, chunk=2 * PAGE))
    running: dict[int, tuple[Request, list[int]]] = {}
    preempt = engine._preempt

    def preempted(held: Held) -> None:
        counts["preempted"] += bool(held.pages)
        preempt(held)

    monkeypatch.setattr(engine, "_preempt", preempted)

    def close(slot: int, why: str) -> None:
        engine.close(slot)
        del running[slot]
        counts[why] += 1

    while sum(counts.values()) < 10_000:
        slot = chance.randrange(SLOTS)
        if slot not in running:
            asked = request(chance)
            made = expected(asked)[: min(chance.choice([0, 0, 2]), asked.max_frames - 1)]
            engine.open(slot, asked, np.array(made, np.uint16)[:, None])
            running[slot] = asked, made
            counts["opened"] += 1
        elif chance.random() < 0.04:
            close(slot, "dropped")
        for frame in engine.step(chance.sample(sorted(running), min(len(running), chance.randint(0, 3)))):
            asked, made = running[frame.slot]
            made += frame.codes
            if not frame.codes or len(made) == asked.max_frames:
                assert made == expected(asked)
                close(frame.slot, "ended")
        engine.audit()
    assert min(counts[what] for what in ("opened", "ended", "dropped", "preempted")) > 100
    for slot in list(running):
        engine.close(slot)
    engine.audit()
    assert engine._pool.available == PAGES
