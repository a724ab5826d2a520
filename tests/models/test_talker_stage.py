"""A talker as a stage: takes that come to nothing or to no end, and text that is not all there yet."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
import torch
from driving import drive, drive_open, length, payload, task
from test_engine import engine_of, talker
from test_engine_tracks import CASES as READ_WHILE_SPOKEN
from test_engine_tracks import engine_of as reading_engine

from speechmill.models.common.draws import stream_key
from speechmill.models.common.engine.engine import Engine
from speechmill.models.common.engine.model import Request
from speechmill.models.common.engine.stage import TalkerStage, read_codes
from speechmill.models.stage import Emission, Resume

FRAMES = 8
"""Within which some takes end and others do not."""
EVERY = range(1, FRAMES)
TEXT = torch.randint(talker().config.semantic[0] - 1, (2,), generator=torch.Generator().manual_seed(34))
"""With one seed of six the model has nothing to say."""
PROMPT = np.pad(TEXT.numpy()[None], ((0, talker().codes), (0, 0)))
ASKED = Request(PROMPT, 0, (1.0, 1.0, float("inf"), 1.0), FRAMES)
TO_END = replace(ASKED, end_expected=True)


@cache
def engine() -> Engine:
    return engine_of()


@cache
def one_try(key: int) -> bytes:
    """Its codes, by the engine alone."""
    engine().open(0, replace(ASKED, key=key), read_codes(b"", talker().codes))
    made: list[list[int]] = []
    while len(made) < FRAMES:
        frames = engine().step([0])
        if any(not frame.codes for frame in frames):
            break
        made += [list(frame.codes) for frame in frames]
    engine().close(0)
    return np.array(made, "<u2").tobytes()


def seed_of(first: Collection[int], second: Collection[int]) -> int:
    """A seed whose two tries make so many frames."""
    return next(k for k in range(300) if frames_of(k) in first and frames_of(stream_key(k, 1)) in second)


def frames_of(key: int) -> int:
    return len(one_try(key)) // (2 * talker().codes)


def spoken(asked: Request, seed: int, live: bool = False, resume: Resume | None = None) -> list[Emission]:
    stage = TalkerStage(engine(), lambda asking: replace(asked, key=asking.seed), task(""), 0)
    return drive(stage, task("", seed=seed, live=live), resume=resume)


@pytest.mark.parametrize("live", [False, True])
def test_a_take_that_says_nothing_is_tried_again_with_other_draws(live: bool) -> None:
    seed = seed_of([0], EVERY)
    assert payload(spoken(ASKED, seed, live)) == one_try(stream_key(seed, 1))


def test_a_take_that_says_nothing_twice_ends_so() -> None:
    (end,) = spoken(ASKED, seed_of([0], [0]))
    assert (end.frames, end.trailer) == (0, {"finish_reason": "stop"})


def test_whoever_goes_on_with_a_second_try_takes_its_draws() -> None:
    seed = seed_of([0], range(5, FRAMES))
    first, *following = spoken(ASKED, seed, live=True)
    begun = Resume(first.frames, first.payload, first.cursor)
    assert payload(spoken(ASKED, seed, live=True, resume=begun)) == payload(following) != b""


def test_a_take_without_an_end_is_tried_again_where_nobody_listens() -> None:
    seed = seed_of([FRAMES], EVERY)
    (made,) = spoken(TO_END, seed)
    assert (made.payload, made.trailer) == (one_try(stream_key(seed, 1)), {"finish_reason": "stop"})
    live = spoken(TO_END, seed, live=True)
    assert (payload(live), live[-1].trailer) == (one_try(seed), {"finish_reason": "length"})


@pytest.mark.parametrize("second", [0, FRAMES])
def test_a_take_that_ends_well_in_no_try_is_what_a_listener_hears(second: int) -> None:
    seed = seed_of([FRAMES], [second])
    (made,) = spoken(TO_END, seed)
    assert (made.payload, made.trailer) == (one_try(seed), {"finish_reason": "length"})
    (end,) = spoken(TO_END, seed, resume=Resume(FRAMES, made.payload, made.cursor))
    assert (end.frames, end.trailer) == (0, made.trailer)


def test_what_is_in_the_log_is_not_said_again() -> None:
    seed = seed_of([FRAMES], EVERY)
    first, *_ = spoken(TO_END, seed, live=True)
    rest = spoken(TO_END, seed, resume=Resume(first.frames, first.payload))
    assert (first.payload + payload(rest), rest[-1].trailer) == (one_try(seed), {"finish_reason": "length"})


def test_a_budget_of_the_caller_s_is_no_reason_to_try_again() -> None:
    seed = seed_of([FRAMES], EVERY)
    made = spoken(ASKED, seed)
    assert (payload(made), made[-1].trailer) == (one_try(seed), {"finish_reason": "length"})


def test_a_listener_gets_pieces_of_the_sizes_that_the_card_says() -> None:
    seed = seed_of([FRAMES], range(FRAMES + 1))
    stage = TalkerStage(engine(), lambda asking: replace(ASKED, key=asking.seed), task(""), 0, live=(1, 2))
    pieces = drive(stage, task("", seed=seed, live=True))
    assert [piece.frames for piece in pieces] == [1, 2, 2, 2, 1]
    assert payload(pieces) == one_try(seed)


@dataclass(frozen=True)
class Written:
    """A text that is complete at once."""

    request: Request

    def feed(self, text: str, final: bool) -> Request:
        return self.request


def test_an_open_text_is_spoken_alike_however_early_it_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    """What of it is in the log by its end, and with that the chance of another try, must not depend on when it came."""
    monkeypatch.setattr("speechmill.models.common.engine.stage.BULK_FRAMES", FRAMES // 2)
    seed = seed_of([FRAMES], EVERY)
    asked = replace(TO_END, key=seed)
    stage = TalkerStage(engine(), lambda asking: asked, task(""), 0, plan_open=lambda asking: Written(asked))
    made = drive_open(stage, task("", open=True), [])
    assert (payload(made), made[-1].trailer) == (one_try(seed), {"finish_reason": "length"})


def test_a_slot_rests_while_its_text_is_on_its_way() -> None:
    whole, engine = READ_WHILE_SPOKEN[3], reading_engine()
    wanted = payload(drive(TalkerStage(engine, lambda asking: whole, task(""), 0), task("")))
    begun = replace(whole, beside=whole.beside[:2], complete=False)
    stage, made = TalkerStage(engine, lambda asking: begun, task(""), 0), list[Emission]()
    stage.open(0, task(""), Resume())
    for token in whole.beside[2:]:
        while stage.runnable(0):
            made += stage.step([0])
        engine.extend(0, [token])
    assert length(made) == len(whole.beside) - 1  # whoever listens hears what there is
    engine.extend(0, [], complete=True)
    while not (made and made[-1].final):
        assert stage.runnable(0)
        made += stage.step([0])
    assert payload(made) == wanted
