"""The engine with a small random model: what is spoken depends on nothing but the request."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor

from speechmill.models.common.engine.engine import Engine, EngineOptions, TooLong
from speechmill.models.common.engine.held import Held
from speechmill.models.common.engine.model import Columns, Request, Vectors
from speechmill.models.fish_speech.random import random_prompt, random_talker
from speechmill.models.fish_speech.talker import Talker

torch.set_num_threads(1)

PAGE = 16
Codes = list[tuple[int, ...]]


@cache
def talker() -> Talker:
    return random_talker("tiny", torch.device("cpu"), torch.float32, seed=3)


def request(text: int, reference: int, voice: int, seed: int, frames: int, temperature: float = 0.9) -> Request:
    """`voice` decides the reference, `seed` the text and the draws."""
    heard = random_prompt(talker(), 0, reference, voice)
    asked = random_prompt(talker(), text, 0, seed)
    return Request(np.concatenate([heard, asked], axis=1), seed, (temperature, 0.95, 30.0, 1.1), frames)


CASES = [
    request(text=5, reference=40, voice=1, seed=1, frames=20),
    request(text=30, reference=40, voice=1, seed=2, frames=12),
    request(text=9, reference=0, voice=0, seed=3, frames=25, temperature=1.4),
    request(text=61, reference=33, voice=2, seed=4, frames=7),
    request(text=1, reference=0, voice=0, seed=5, frames=30),
    request(text=16, reference=16, voice=3, seed=6, frames=17),
    request(text=17, reference=80, voice=4, seed=7, frames=3),
    request(text=5, reference=40, voice=1, seed=8, frames=15, temperature=0.2),
]


def engine_of(**options: int) -> Engine:
    return Engine(talker(), EngineOptions(**{"slots": 8, "page": PAGE, "pages": 200, "chunk": 2 * PAGE, **options}))


def open_in(engine: Engine, slot: int, asked: Request, made: Sequence[tuple[int, ...]] = ()) -> None:
    engine.open(slot, asked, np.array(made, np.uint16).reshape(-1, engine.model.codes))


def speak(
    engine: Engine,
    asked: Sequence[Request],
    joins: random.Random | None = None,
    come: Callable[[Engine, int, Request], None] = open_in,
    before_step: Callable[[set[int]], None] = lambda running: None,
) -> list[Codes]:
    """All requests, side by side; with `joins` they come in at random steps, and a step takes some slots at random."""
    spoken: list[Codes] = [[] for _ in asked]
    waiting, running = list(range(len(asked))), set[int]()
    while waiting or running:
        while waiting and (joins is None or not running or joins.random() < 0.2):
            come(engine, waiting[0], asked[waiting[0]])
            running.add(waiting.pop(0))
        before_step(running)
        slots = sorted(running)
        if joins is not None:
            slots = joins.sample(slots, joins.randint(1, len(slots)))
        for frame in engine.step(slots):
            spoken[frame.slot] += [tuple(frame.codes)] if frame.codes else []
            if not frame.codes or len(spoken[frame.slot]) == asked[frame.slot].max_frames:
                engine.close(frame.slot)
                running.remove(frame.slot)
        engine.audit()
    return spoken


@cache
def alone() -> list[Codes]:
    return [speak(engine_of(), [asked])[0] for asked in CASES]


def test_the_cases_differ_and_some_last() -> None:
    assert len({tuple(codes) for codes in alone()}) == len(CASES)
    assert max(map(len, alone())) > 10


@pytest.mark.parametrize("seed", range(3))
def test_a_request_is_spoken_alike_alone_and_among_others_that_come_and_go(seed: int) -> None:
    assert speak(engine_of(), CASES, random.Random(seed)) == alone()


def test_a_request_goes_on_alike_after_each_of_its_frames() -> None:
    engine = engine_of()
    for number in (0, 5):
        whole = alone()[number]
        for done in range(1, len(whole)):
            open_in(engine, 0, CASES[number], whole[:done])
            rest = list(whole[:done])
            while len(rest) < min(len(whole), done + 4):
                rest += [tuple(frame.codes) for frame in engine.step([0])]
            engine.close(0)
            assert rest == whole[: len(rest)]


def keys_of(engine: Engine, slot: int) -> Tensor:
    held = engine._held[slot]
    return engine._cache.keys[:, held.pages].flatten(1, 2)[:, : held.computed]


def test_what_is_computed_again_or_beside_others_has_the_same_bits() -> None:
    asked, whole = CASES[5], alone()[5]
    first, again, beside = engine_of(), engine_of(), engine_of()
    open_in(first, 0, asked)
    open_in(again, 0, asked, whole[:9])
    for slot, other in enumerate([asked, *CASES[:5]]):
        open_in(beside, slot, other)
    for engine, slots in ((first, [0]), (again, [0]), (beside, [3, 1, 0, 5, 2, 4])):
        while engine._held[0].length < asked.prompt.shape[1] + 12:
            ended = [frame.slot for frame in engine.step(slots) if not frame.codes]
            slots = [slot for slot in slots if slot not in ended]
    assert torch.equal(keys_of(again, 0), keys_of(first, 0))
    assert torch.equal(keys_of(beside, 0), keys_of(first, 0))


def test_steps_of_fixed_shapes_as_a_gpu_takes_them_speak_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_of()
    monkeypatch.setattr(engine._runner, "_fixed", True)
    assert speak(engine, CASES[:4], random.Random(2)) == alone()[:4]
    open_in(engine, 0, CASES[5], alone()[5][:11])
    while not (made := engine.step([0])):
        pass
    assert tuple(made[0].codes) == alone()[5][11]


def test_half_precision_is_spoken_alike_each_time() -> None:
    model = random_talker("tiny", torch.device("cpu"), torch.bfloat16)
    once, again = (speak(Engine(model, EngineOptions(slots=1, page=PAGE, pages=20)), CASES[:1]) for _ in range(2))
    assert once == again
    assert once[0]


def note_preempted(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that grows by the slot of each sequence that gives up pages which it has."""
    preempt, preempted = engine._preempt, list[int]()

    def noted(held: Held) -> None:
        preempted.extend([held.slot] if held.pages else [])
        preempt(held)

    monkeypatch.setattr(engine, "_preempt", noted)
    return preempted


def test_who_has_to_give_up_pages_is_spoken_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    longest = max(asked.prompt.shape[1] + asked.max_frames for asked in CASES)
    engine = engine_of(pages=2 * (longest // PAGE))
    preempted = note_preempted(engine, monkeypatch)
    assert speak(engine, CASES, random.Random(1)) == alone()
    assert len(preempted) > 5


def test_whoever_rests_longest_gives_up_pages_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not who holds the first slot: those that a step leaves out can be more urgent than it knows."""
    engine = engine_of(pages=9)
    preempted = note_preempted(engine, monkeypatch)
    for slot, asked in enumerate((CASES[0], CASES[5], CASES[4])):
        open_in(engine, slot, asked)
    for slots in ([0, 1, 2], [2, 1, 0], [0, 2, 1], [0, 2], [0]):
        engine.step(slots)
    open_in(engine, 3, CASES[3])
    while not engine.step([3]):
        assert len(preempted) <= 3
    assert preempted == [1, 2, 0][: len(preempted)]
    assert len(preempted) > 1
    engine.audit()


def test_a_voice_heard_before_is_not_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_of()
    prefill, computed = engine._runner.prefill, list[int]()

    def noted(pages: Sequence[int], columns: Columns, start: int, vectors: Vectors) -> None:
        computed.append(columns.shape[1])
        prefill(pages, columns, start, vectors)

    monkeypatch.setattr(engine._runner, "prefill", noted)
    assert speak(engine, CASES[:1]) == alone()[:1]
    first, computed[:] = sum(computed), []
    assert speak(engine, [CASES[7]]) == [alone()[7]]
    assert first == CASES[0].prompt.shape[1] - 1
    assert sum(computed) == first - 40 // PAGE * PAGE  # all but the reference's full pages


def test_references_that_differ_in_residual_codes_only_are_told_apart() -> None:
    other = CASES[0].prompt.copy()
    other[2:, :40] = (other[2:, :40] + 1) % talker().config.codebook
    changed = replace(CASES[0], prompt=other)
    engine = engine_of()
    speak(engine, CASES[:1])
    assert speak(engine, [changed]) == speak(engine_of(), [changed]) != alone()[:1]


def test_what_cannot_fit_is_refused_when_it_comes() -> None:
    engine = engine_of(pages=4)
    with pytest.raises(TooLong, match="the prompt takes 94 positions and there is room for 64"):
        open_in(engine, 0, CASES[3])
    with pytest.raises(TooLong, match="a prompt of 45 positions leaves no room for 21 frames"):
        open_in(engine, 0, replace(CASES[0], max_frames=21))
    assert speak(engine, [replace(CASES[0], max_frames=20)]) == alone()[:1]
    engine.audit()
