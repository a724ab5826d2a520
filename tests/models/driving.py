"""Drives stages the way a worker does, without queues or logs."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
from goldens import Goldens
from numpy.typing import NDArray

from speechmill.models.card import ModelCard
from speechmill.models.registry import cards, load_stage
from speechmill.models.stage import Chunk, Emission, Mark, Resume, Stage, StageOptions, StageTask
from speechmill.models.tone import stages as tone

CHECKPOINTS = {
    "fishaudio/s2-pro": Goldens("fish_speech").folder / "ckpt",
    "Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice": Goldens("qwen3_tts").folder / "custom_voice",
}
"""Of models whose weights are too large to have here: small random ones."""


def options(card: ModelCard, name: str) -> StageOptions:
    stage, checkpoint = card.stage(name), CHECKPOINTS.get(card.id)
    return StageOptions(stage.slots, "cpu", 1, stage.live_chunks, stage.bulk_chunk, checkpoint)


@cache
def loaded(model: str, name: str) -> Stage:
    """By the family's engine, or as a tone where it has none or no weights."""
    card = cards()[model]
    load = load_stage if card.own_weights or model in CHECKPOINTS else tone.load
    return load(card, name, options(card, name))


def task(text: str, **changes: object) -> StageTask:
    return replace(StageTask("job_test", 0, 0, text, "default", 7), **changes)  # type: ignore[arg-type]


def drive(stage: Stage, task: StageTask, log: Sequence[Chunk] = (), resume: Resume | None = None) -> list[Emission]:
    """Everything one slot emits when its whole input log is there."""
    return drive_together(stage, [(task, log)], resume)[0]


def drive_together(
    stage: Stage, work: Sequence[tuple[StageTask, Sequence[Chunk]]], resume: Resume | None = None
) -> list[list[Emission]]:
    """The same for several slots that step together until each has ended."""
    emissions: list[list[Emission]] = [[] for _ in work]
    for slot, (task, log) in enumerate(work):
        stage.open(slot, task, resume or Resume())
        for chunk in log:
            stage.feed(slot, chunk)
    running = set(range(len(work)))
    while running:
        for emission in stage.step([slot for slot in sorted(running) if stage.runnable(slot)]):
            emissions[emission.slot].append(emission)
            if emission.final:
                running.remove(emission.slot)
                stage.close(emission.slot)
    return emissions


def as_log(emissions: Sequence[Emission]) -> list[Chunk]:
    """What a reader of the log sees."""
    log: list[Chunk] = []
    end = 0
    for emission in emissions:
        log.append(Chunk(end, end + emission.frames, emission.payload, emission.marks, emission.final))
        end += emission.frames
    return log


def length(emissions: Sequence[Emission]) -> int:
    return sum(emission.frames for emission in emissions)


def marks(emissions: Sequence[Emission]) -> list[Mark]:
    return [mark for emission in emissions for mark in emission.marks]


def payload(emissions: Sequence[Emission]) -> bytes:
    return b"".join(emission.payload for emission in emissions)


def samples(emissions: Sequence[Emission]) -> NDArray[np.int32]:
    """s16le payloads as integers that may be subtracted."""
    return np.frombuffer(payload(emissions), "<i2").astype(np.int32)


def assert_same_audio(one: Sequence[Emission], other: NDArray[np.int32]) -> None:
    """design.md, Exactness: pcm has the exact length and differs by at most one unit."""
    found = samples(one)
    assert len(found) == len(other)
    assert np.abs(found - other).max(initial=0) <= 1
