"""The engine with a model that reads while it speaks and has continuous inputs: exact, whenever its text comes."""

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import test_engine
import torch
from test_engine import Codes, note_preempted, open_in

from speechmill.models.common.engine.engine import Engine, EngineOptions, TooLong
from speechmill.models.common.engine.model import Columns, Request, Vectors
from speechmill.models.qwen3_tts.random import random_prompt, random_speaker, random_talker
from speechmill.models.qwen3_tts.talker import Talker

torch.set_num_threads(1)

PAGE = 8


@cache
def talker() -> Talker:
    return random_talker("tiny", torch.device("cpu"), torch.float32, seed=5)


def request(voice: int, text: int, reference: int, seed: int, frames: int, beside: int) -> Request:
    """`voice` decides speaker and reference, `seed` the text and the draws."""
    heard = random_prompt(talker(), 1, reference, voice)[:, :-1]
    asked = random_prompt(talker(), text, 0, seed)[:, 1:]
    track = np.random.default_rng(seed).integers(talker().config.text.start, size=beside)
    settings = (0.9, 1.0, 50.0, 1.05, 0.9, 1.0, 50.0)
    return Request(
        np.concatenate([heard, asked], axis=1),
        seed,
        settings,
        frames,
        vectors=random_speaker(talker(), voice),
        beside=tuple(track.tolist()),
        rest=talker().config.text.pad,
    )


CASES = [
    request(voice=1, text=3, reference=20, seed=1, frames=14, beside=9),
    request(voice=2, text=3, reference=20, seed=2, frames=10, beside=0),
    request(voice=1, text=12, reference=20, seed=3, frames=12, beside=30),
    request(voice=3, text=1, reference=0, seed=4, frames=16, beside=5),
    request(voice=3, text=9, reference=0, seed=5, frames=7, beside=1),
    request(voice=4, text=20, reference=3, seed=6, frames=9, beside=2),
]


def engine_of(**options: int) -> Engine:
    return Engine(talker(), EngineOptions(**{"slots": 8, "page": PAGE, "pages": 100, "chunk": 2 * PAGE, **options}))


def speak(engine: Engine, asked: Sequence[Request], joins: random.Random | None = None) -> list[Codes]:
    """As the other engine's; with `joins` what stands beside the frames comes in pieces, too."""
    if joins is None:
        return test_engine.speak(engine, asked)

    def come(engine: Engine, slot: int, request: Request) -> None:
        known = joins.randint(0, len(request.beside))
        open_in(engine, slot, replace(request, beside=request.beside[:known], complete=False))

    return test_engine.speak(
        engine, asked, joins, come, lambda running: tell_more(engine, {slot: asked[slot] for slot in running}, joins)
    )


def tell_more(engine: Engine, running: dict[int, Request], chance: random.Random) -> None:
    """Some of the text that is not known yet, to those that wait for it and now and then to others."""
    for slot, asked in running.items():
        known = engine._held[slot].request
        if not known.complete and (engine.waits(slot) or chance.random() < 0.1):
            more = asked.beside[len(known.beside) :][: chance.randint(0, 4)]
            engine.extend(slot, more, complete=len(known.beside) + len(more) == len(asked.beside))


@cache
def alone() -> list[Codes]:
    return [speak(engine_of(), [asked])[0] for asked in CASES]


def test_the_cases_differ_and_some_last() -> None:
    assert len({tuple(codes) for codes in alone()}) == len(CASES)
    assert max(map(len, alone())) > 8


@pytest.mark.parametrize("seed", range(2))
def test_text_that_comes_in_pieces_is_spoken_as_if_it_had_been_there(seed: int) -> None:
    assert speak(engine_of(), CASES, random.Random(seed)) == alone()


def test_what_stands_beside_the_frames_and_what_is_heard_are_both_part_of_what_is_spoken() -> None:
    asked, track, whole = CASES[3], CASES[3].beside, alone()[3]
    changed = [
        replace(asked, vectors=random_speaker(talker(), 9)),
        replace(asked, beside=(track[0] + 1, *track[1:])),
        replace(asked, beside=track[:3]),
        replace(asked, rest=asked.rest - 1),
    ]
    assert whole not in [speak(engine_of(), [each])[0] for each in changed]
    (later,) = speak(engine_of(), [replace(asked, beside=(*track[:3], track[3] + 1, *track[4:]))])
    assert later[:4] == whole[:4]  # the column that follows frame 3 is run for frame 4
    assert later != whole


def test_it_goes_on_alike_after_each_frame_and_waits_until_it_knows_what_stood_beside_those() -> None:
    engine = engine_of()
    for number in (0, 3):
        whole, asked = alone()[number], CASES[number]
        for done in range(1, len(whole)):
            open_in(engine, 0, replace(asked, beside=(), complete=False), whole[:done])
            for token in asked.beside[:done]:
                while not engine.waits(0):
                    assert engine.step([0]) == []
                assert engine.step([0]) == []
                engine.extend(0, [token])
            engine.extend(0, asked.beside[done:], complete=True)
            rest = list(whole[:done])
            while len(rest) < min(len(whole), done + 3):
                rest += [tuple(frame.codes) for frame in engine.step([0])]
            engine.close(0)
            assert rest == whole[: len(rest)]


def test_who_has_to_give_up_pages_is_spoken_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    longest = max(asked.prompt.shape[1] + asked.max_frames for asked in CASES)
    engine = engine_of(pages=2 * (longest // PAGE))
    preempted = note_preempted(engine, monkeypatch)
    assert speak(engine, CASES, random.Random(4)) == alone()
    assert len(preempted) > 3


def test_who_waits_for_text_takes_no_pages_back() -> None:
    engine = engine_of(pages=(CASES[2].prompt.shape[1] + CASES[2].max_frames) // PAGE + 1)
    open_in(engine, 0, replace(CASES[0], beside=CASES[0].beside[:2], complete=False))
    while not engine.waits(0):
        engine.step([0])
    open_in(engine, 1, CASES[2])
    while engine._held[0].pages:
        engine.step([1])
    assert engine.waits(0)
    assert engine.step([0]) == []
    assert not engine._held[0].pages


def test_steps_of_fixed_shapes_as_a_gpu_takes_them_speak_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_of()
    monkeypatch.setattr(engine._runner, "_fixed", True)
    assert speak(engine, CASES[:4], random.Random(2)) == alone()[:4]


def test_a_slot_that_was_somebody_else_s_keeps_nothing_beside_its_frames() -> None:
    engine = engine_of()
    for number in (2, 1, 3):
        assert speak(engine, [CASES[number]]) == [alone()[number]]


def test_speakers_share_pages_with_themselves_only(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_of()
    prefill, computed = engine._runner.prefill, list[int]()

    def noted(pages: Sequence[int], columns: Columns, start: int, vectors: Vectors) -> None:
        computed.append(columns.shape[1])
        prefill(pages, columns, start, vectors)

    monkeypatch.setattr(engine._runner, "prefill", noted)
    length = CASES[0].prompt.shape[1] - 1
    other = replace(CASES[0], vectors=random_speaker(talker(), 9))  # the same columns, of somebody else
    spoken = {}
    for asked, new in ((CASES[0], length), (other, length), (CASES[0], length % PAGE), (other, length % PAGE)):
        computed.clear()
        made = speak(engine, [asked])
        assert spoken.setdefault(id(asked), made) == made
        assert sum(computed) == new
    assert spoken[id(CASES[0])] == alone()[:1] != spoken[id(other)]


def test_more_text_than_there_is_room_for_is_refused() -> None:
    engine = engine_of()
    with pytest.raises(TooLong, match="1025 tokens stand beside the frames; at most 1024 can"):
        open_in(engine, 0, replace(CASES[0], beside=(1,) * 1025))
    open_in(engine, 0, replace(CASES[0], beside=(1,) * 1000, complete=False))
    with pytest.raises(TooLong, match="1030 tokens"):
        engine.extend(0, [1] * 30)
