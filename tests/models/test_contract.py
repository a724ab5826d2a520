"""What every family owes the worker that drives it, whatever its stages are."""

import re
from dataclasses import replace

import pytest
from driving import (
    as_log,
    assert_same_audio,
    drive,
    drive_open,
    drive_together,
    length,
    loaded,
    marks,
    payload,
    samples,
    task,
)

from speechmill.models.card import ModelCard
from speechmill.models.registry import cards
from speechmill.models.stage import Chunk, Emission, Resume, StageTask

TEXT = "The first sentence is here. And a second one, which is longer, follows it."
OTHER = "Something else is said beside it."


@pytest.fixture(params=cards().values(), ids=cards().keys(), scope="module")
def card(request: pytest.FixtureRequest) -> ModelCard:
    found: ModelCard = request.param
    return found


def logs(card: ModelCard, spoken: StageTask) -> dict[str, list[Emission]]:
    """What each stage emits, every one fed with the log of the one before."""
    emissions: dict[str, list[Emission]] = {}
    log: list[Chunk] = []
    for stage in card.stages:
        emissions[stage.name] = drive(loaded(card.id, stage.name), spoken, log)
        log = as_log(emissions[stage.name])
    return emissions


def inputs(card: ModelCard, spoken: StageTask, stage: str) -> list[Chunk]:
    """The log that a stage reads."""
    names = [each.name for each in card.stages]
    position = names.index(stage)
    return as_log(logs(card, spoken)[names[position - 1]]) if position else []


def test_every_stage_warms_up_and_leaves_no_slot_behind(card: ModelCard) -> None:
    for stage in card.stages:
        loaded(card.id, stage.name).warm()
        loaded(card.id, stage.name).close(0)


def test_every_stage_ends_once_and_at_its_last_emission(card: ModelCard) -> None:
    for emissions in logs(card, task(TEXT)).values():
        assert [emission.final for emission in emissions].index(True) == len(emissions) - 1
        assert length(emissions) > 0


def test_the_last_stage_emits_two_bytes_for_every_sample_of_a_channel(card: ModelCard) -> None:
    for emission in logs(card, task(TEXT, live=True))[card.stages[-1].name]:
        assert len(emission.payload) == 2 * card.channels * emission.frames


def test_somebody_who_listens_hears_the_same_as_somebody_who_does_not(card: ModelCard) -> None:
    last = card.stages[-1].name
    assert_same_audio(logs(card, task(TEXT, live=True))[last], samples(logs(card, task(TEXT))[last]))


def test_work_that_nobody_hears_comes_in_fewer_pieces(card: ModelCard) -> None:
    last = card.stages[-1]
    live, bulk = (logs(card, task(TEXT, live=live))[last.name] for live in (True, False))
    assert len(bulk) < len(live) or not last.live_chunks


def test_the_same_task_gives_the_same_bytes(card: ModelCard) -> None:
    once, again = logs(card, task(TEXT)), logs(card, task(TEXT))
    assert all(payload(once[name]) == payload(again[name]) for name in once)


@pytest.mark.parametrize("change", [{"seed": 8}, {"take": 1}, {"segment": 1}], ids=str)
def test_another_seed_take_or_segment_sounds_different(card: ModelCard, change: dict[str, int]) -> None:
    last, budget = card.stages[-1].name, {"max_new_tokens": 256}  # random weights may come to no end
    spoken = task(TEXT, params=budget)
    assert payload(logs(card, spoken)[last]) != payload(logs(card, replace(spoken, **change))[last])  # type: ignore[arg-type]


def test_neighbours_in_a_batch_change_nothing(card: ModelCard) -> None:
    spoken = [task(TEXT, live=True), task(OTHER, seed=1, live=True), task(TEXT)]
    for stage in card.stages:
        read = [inputs(card, each, stage.name) for each in spoken]
        together = drive_together(loaded(card.id, stage.name), list(zip(spoken, read, strict=True)))
        for each, log, found in zip(spoken, read, together, strict=True):
            alone = drive(loaded(card.id, stage.name), each, log)
            if stage.unit == "pcm":
                assert_same_audio(found, samples(alone))
            else:
                assert payload(found) == payload(alone)


def test_a_stage_continues_after_each_of_its_emissions(card: ModelCard) -> None:
    spoken = task(TEXT, live=True)
    for stage in card.stages:
        log = inputs(card, spoken, stage.name)
        whole = drive(loaded(card.id, stage.name), spoken, log)
        for count in range(1, len(whole) + 1):
            done = whole[:count]
            output = payload(done) if stage.resume == "replay" else b""
            resume = Resume(length(done), output, done[-1].cursor)
            rest = drive(loaded(card.id, stage.name), spoken, log, resume)
            assert marks(done) + marks(rest) == marks(whole)
            if stage.unit == "pcm":
                assert_same_audio(rest, samples(whole)[length(done) :])
            else:
                assert payload(rest) == payload(whole[count:])


def test_a_text_that_is_still_being_written_is_spoken_alike_however_it_is_cut(card: ModelCard) -> None:
    if not card.parameters.incremental:
        pytest.skip("the model waits for all of the text")
    first = card.stages[0]
    made = loaded(card.id, first.name)
    spoken = task("", live=True, open=True)
    whole = drive_open(made, spoken, [TEXT])
    beside = task(TEXT, live=True, params={"non_streaming_mode": False})
    assert payload(whole) == payload(drive(made, beside)) != b""
    for pieces in (list(TEXT), re.findall(r"\S+\s*", TEXT)):
        cut = drive_open(made, spoken, pieces)
        assert payload(cut) == payload(whole)
        for count in (1, len(cut) // 2):
            done = cut[:count]
            output = payload(done) if first.resume == "replay" else b""
            rest = drive_open(made, spoken, [TEXT], Resume(length(done), output, done[-1].cursor))
            assert payload(done) + payload(rest) == payload(whole)


def test_words_are_told_in_order_and_lie_inside_the_log(card: ModelCard) -> None:
    if not card.parameters.word_timestamps:
        pytest.skip("the model tells no word times")
    for emissions in logs(card, task(TEXT, live=True)).values():
        told = marks(emissions)
        assert [mark.word for mark in told] == TEXT.split()
        edges = [edge for mark in told for edge in (mark.start, mark.end)]
        assert edges == sorted(edges)
        assert edges[0] >= 0
        assert edges[-1] <= length(emissions)
