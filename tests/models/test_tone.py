"""The stand-in: what the contract of all families does not say of it."""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count, pairwise

import numpy as np
import pytest
from driving import as_log, drive, drive_open, length, marks, payload, samples, task
from hypothesis import given
from hypothesis import strategies as st

from speechmill.models.card import ModelCard, Speed
from speechmill.models.registry import cards
from speechmill.models.stage import Chunk, Emission, Resume, SlotFailed, StageOptions, StageTask
from speechmill.models.tone import stages as tone
from speechmill.models.tone.stages import ToneStage

CARD = cards()["Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice"]
RATE = CARD.sample_rate
FRAME = 1920
TEXT = "Good morning, this is a short test of the speech server."
SECONDS = round(len(TEXT) * 0.06 * 12.5) / 12.5


def stage(name: str, card: ModelCard = CARD, pace: float = 0.0, **options: object) -> ToneStage:
    made = tone.load(card, name, replace(StageOptions(slots=8), **options), pace)  # type: ignore[arg-type]
    assert isinstance(made, ToneStage)
    return made


def codes(spoken: StageTask, card: ModelCard = CARD) -> list[Chunk]:
    return as_log(drive(stage(card.stages[0].name, card), spoken))


def audio(spoken: StageTask, card: ModelCard = CARD) -> list[Emission]:
    return drive(stage(card.stages[-1].name, card), spoken, codes(spoken, card))


class Clock:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(tone, "time", clock)
    return clock


def paced(made: ToneStage, clock: Clock, spoken: StageTask, resume: Resume | None = None) -> Iterator[Emission]:
    """What the slot emits, with the clock moved on to where the stage says that it is due."""
    made.open(0, spoken, resume or Resume())
    for chunk in codes(spoken):
        made.feed(0, chunk)
    for _ in count():
        clock.now += max(made.due_s(), 0)
        assert made.runnable(0)
        (emission,) = made.step([0])
        yield emission
        if emission.final:
            return


def test_length_follows_the_text() -> None:
    assert length(audio(task(TEXT))) == SECONDS * RATE
    assert length(audio(task("a"))) == 4 * FRAME  # 0.3 s, in whole frames of the first stage
    assert length(audio(task("a" * 5000))) == 20 * RATE


def test_a_length_that_is_asked_for_is_kept() -> None:
    auk = cards()["auk"]
    assert length(audio(task("", params={"duration_seconds": 2}), auk)) == 2 * auk.sample_rate


def test_only_a_model_of_its_own_tempo_follows_the_speed() -> None:
    native = CARD.model_copy(update={"parameters": CARD.parameters.model_copy(update={"speed": Speed(by="native")})})
    fast = task("a" * 100, params={"speed": 2.0})
    assert length(audio(fast)) == 6 * RATE
    assert length(audio(fast, native)) == pytest.approx(3 * RATE, abs=FRAME)


def test_a_tone_is_clear_and_never_silent() -> None:
    heard = samples(audio(task(TEXT))) / 32768
    loud = np.sqrt(np.mean(heard[: len(heard) // 480 * 480].reshape(-1, 480) ** 2, axis=1))
    assert loud.min() > 0.08
    assert 0.28 < np.abs(heard).max() <= 0.3


def test_voices_differ_and_their_case_does_not() -> None:
    by_voice = {name: payload(audio(task(TEXT, voice=name))) for name in ("vivian", "ryan", "Ryan")}
    assert by_voice["ryan"] == by_voice["Ryan"] != by_voice["vivian"]


@given(st.lists(st.integers(1, 30), min_size=1, max_size=4), st.lists(st.integers(1, 12), max_size=6), st.booleans())
def test_no_cut_of_input_or_output_changes_a_sample(live: list[int], cuts: list[int], listened: bool) -> None:
    spoken = task(TEXT, live=listened)
    total = round(SECONDS * 12.5)
    edges = sorted({0, total, *(cut for cut in np.cumsum([0, *cuts]).tolist() if cut < total)})
    log = [Chunk(a, b, final=b == total) for a, b in pairwise(edges)]
    assert payload(drive(stage("codec", live_chunks=tuple(live)), spoken, log)) == payload(audio(spoken))


@given(st.lists(st.integers(0, len(TEXT)), max_size=8))
def test_an_open_text_sounds_like_the_same_text_when_it_is_complete(cuts: list[int]) -> None:
    edges = sorted([0, *cuts, len(TEXT)])
    opened = task("", live=True, open=True)
    log = as_log(drive_open(stage("talker"), opened, [TEXT[a:b] for a, b in pairwise(edges)]))
    assert payload(drive(stage("codec", live_chunks=(2, 3)), opened, log)) == payload(audio(task(TEXT)))


def test_frames_of_an_open_text_come_with_it() -> None:
    made, opened = stage("talker"), task("", live=True, open=True)
    made.open(0, opened, Resume())
    assert not made.runnable(0)
    made.feed(0, Chunk(0, 10, TEXT[:10].encode()))
    made_of_it = 0
    while made.runnable(0):
        made_of_it += made.step([0])[0].frames
    assert made_of_it == round(0.06 * 10 * 12.5)


def test_a_budget_that_an_open_text_exceeds_is_told_when_it_does() -> None:
    made = stage("talker")
    made.open(0, task("", open=True, params={"max_new_tokens": 5}), Resume())
    made.feed(0, Chunk(0, 5, b"Hello"))
    with pytest.raises(SlotFailed, match="max_new_tokens allows 5"):
        made.feed(0, Chunk(5, 10, b" out!"))


def test_a_listener_gets_the_chunks_of_the_card_and_others_get_everything_at_once() -> None:
    log, live = codes(task(TEXT)), (1, 2, 4)
    made = drive(stage("codec", live_chunks=live), task(TEXT, live=True), log)
    assert [emission.frames for emission in made][:5] == [FRAME, 2 * FRAME, 4 * FRAME, 4 * FRAME, 4 * FRAME]
    assert [emission.frames for emission in drive(stage("codec", live_chunks=live), task(TEXT), log)] == [
        SECONDS * RATE
    ]


def test_words_are_told_at_their_letters_by_every_stage() -> None:
    told = CARD.model_copy(update={"parameters": CARD.parameters.model_copy(update={"word_timestamps": True})})
    spoken = task(TEXT, live=True)
    first = drive(stage("talker", told), spoken)
    heard = drive(stage("codec", told, live_chunks=(3,)), spoken, as_log(first))
    for emissions in (first, heard):
        assert [mark.word for mark in marks(emissions)] == TEXT.split()
        assert marks(emissions)[-1].end == length(emissions)


def test_a_budget_that_the_text_exceeds_is_told_and_no_clip_is_cut() -> None:
    with pytest.raises(SlotFailed, match="max_new_tokens allows 5") as failed:
        stage("talker").open(0, task(TEXT, params={"max_new_tokens": 5}), Resume())
    assert failed.value.code == "incomplete_generation"
    assert length(audio(task(TEXT, params={"max_new_tokens": 4096}))) == SECONDS * RATE


def test_a_pace_makes_the_last_stage_wait_for_its_audio(clock: Clock) -> None:
    made, began = stage("codec", pace=2.0, live_chunks=(5,)), clock.now
    heard = 0
    for emission in paced(made, clock, task(TEXT, live=True)):
        heard += emission.frames
        assert clock.now - began == pytest.approx(2.0 * heard / RATE)
    assert heard == SECONDS * RATE


def test_without_a_pace_nothing_waits_for_the_clock(clock: Clock) -> None:
    made = stage("codec", live_chunks=(5,))
    assert made.due_s() == float("inf")
    began = clock.now
    assert sum(emission.frames for emission in paced(made, clock, task(TEXT, live=True))) == SECONDS * RATE
    assert clock.now == began


def test_a_step_takes_what_it_costs_and_says_the_same(clock: Clock) -> None:
    began, slow = clock.now, tone.load(CARD, "codec", StageOptions(slots=8), cost=(0.5, 0.25))
    for slot in (0, 1):
        slow.open(slot, task(TEXT), Resume())
        for chunk in codes(task(TEXT)):
            slow.feed(slot, chunk)
    assert [emission.payload for emission in slow.step([0, 1])] == [payload(audio(task(TEXT)))] * 2
    assert clock.now - began == 1.0


def faulty(fault: str, **changes: object) -> StageTask:
    return task(TEXT, params={"test_fault": fault}, **changes)


def test_no_audio_is_a_clean_end_of_every_stage() -> None:
    log = codes(faulty("zero_audio"))
    assert [(chunk.end, chunk.final) for chunk in log] == [(0, True)]
    assert [(e.frames, e.final) for e in drive(stage("codec"), faulty("zero_audio"), log)] == [(0, True)]


def test_slow_is_real_time_for_this_job(clock: Clock) -> None:
    began = clock.now
    assert sum(emission.frames for emission in paced(stage("codec"), clock, faulty("slow"))) == SECONDS * RATE
    assert clock.now - began == pytest.approx(SECONDS)


def test_a_failure_in_the_middle_lets_what_was_made_arrive(clock: Clock) -> None:
    made = paced(stage("codec"), clock, faulty("mid_stream"))
    heard = next(made).frames
    assert heard == 0.25 * RATE
    sent = clock.now
    with pytest.raises(SlotFailed, match="in the middle"):
        next(made)
    assert clock.now - sent == pytest.approx(tone.SETTLE_S)


@pytest.fixture
def exits(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[int]]:
    codes: list[int] = []

    def leave(code: int) -> None:
        codes.append(code)
        raise SystemExit

    monkeypatch.setattr(os, "_exit", leave)
    return lambda: codes


def test_a_worker_dies_of_a_job_once_and_its_successor_goes_on(clock: Clock, exits: Callable[[], list[int]]) -> None:
    made = paced(stage("codec"), clock, faulty("worker_crash"))
    head = next(made)
    with pytest.raises(SystemExit):
        next(made)
    assert exits() == [70]
    rest = [*paced(stage("codec"), clock, faulty("worker_crash"), Resume(head.frames))]
    assert exits() == [70]
    assert head.payload + payload(rest) == payload(audio(task(TEXT)))


@pytest.mark.parametrize("fault", ["mid_stream", "worker_crash"])
def test_later_segments_and_earlier_stages_know_no_fault_in_the_middle(fault: str) -> None:
    assert length(audio(faulty(fault, segment=1))) == SECONDS * RATE
    assert length(drive(stage("talker"), faulty(fault))) == SECONDS * 12.5


def test_features_depend_on_the_recording_alone() -> None:
    encode = tone.load(cards()["auk"], "encode", StageOptions(slots=1))
    one, other = {"clip": b"one"}, {"clip": b"other"}
    (made,) = drive(encode, task("", assets=one))
    assert made.final
    assert np.isfinite(np.frombuffer(made.payload, "<f4")).all()
    assert payload(drive(encode, task("more", seed=3, assets=one))) == made.payload
    assert payload(drive(encode, task("", assets=other))) != made.payload


def test_a_stage_that_the_card_does_not_have_is_an_error() -> None:
    with pytest.raises(KeyError):
        tone.load(CARD, "encode", StageOptions(slots=1))
