"""`speechmill bench voice`: the embedded voice beside the wheel's own int8 graph, whole sentences, one thread."""

import time
from collections.abc import Callable
from statistics import median

import numpy as np
from rich.console import Console
from rich.table import Table

from speechmill.cli.bench.texts import SENTENCES
from speechmill.models.registry import cards, load_stage
from speechmill.models.stage import Chunk, Resume, Stage, StageOptions, StageTask

RATE = 24_000


class Engine:
    """The two stages, one sentence at a time; answers seconds of audio."""

    def __init__(self) -> None:
        card = cards()["hibari"]
        self._stages: list[Stage] = []
        for stage in card.stages:
            options = StageOptions(1, live_chunks=stage.live_chunks, bulk_chunk=stage.bulk_chunk)
            self._stages.append(load_stage(card, stage.name, options))
            self._stages[-1].warm()

    def __call__(self, text: str) -> float:
        prosody, decoder = self._stages
        task = StageTask("bench", 1, 0, text, "heart", 1)
        prosody.open(0, task, Resume())
        decoder.open(0, task, Resume())
        position, samples, final = 0, 0, False
        while not final:
            (piece,) = prosody.step([0])
            decoder.feed(0, Chunk(position, position + piece.frames, piece.payload, final=piece.final))
            position, final = position + piece.frames, piece.final
        final = False
        while not final:
            for emission in decoder.step([0]):
                samples, final = samples + emission.frames, emission.final
        prosody.close(0)
        decoder.close(0)
        return samples / RATE


def _wheel() -> Callable[[str], float]:
    from hibari import Hibari

    voice = Hibari(threads=1)
    return lambda text: len(np.asarray(voice(text, seed=1))) / RATE


def _speed(speak: Callable[[str], float], text: str) -> float:
    """Seconds of audio per second of CPU time."""
    began = time.process_time()
    return speak(text) / (time.process_time() - began)


def compare(rounds: int) -> dict[str, float]:
    """Both speak every sentence in turn, so that a busy machine slows both."""
    engine, wheel = Engine(), _wheel()
    for text in SENTENCES[:3]:
        engine(text), wheel(text)
    ours, theirs = [], []
    for text in SENTENCES * rounds:
        ours.append(_speed(engine, text))
        theirs.append(_speed(wheel, text))
    figures = {"ours": median(ours), "wheel": median(theirs)}
    figures["ratio"] = median(one / other for one, other in zip(ours, theirs, strict=True))
    table = Table("voice", "audio s per CPU s")
    table.add_row("hibari's stages, float32", f"{figures['ours']:.1f}")
    table.add_row("the wheel's int8 graph", f"{figures['wheel']:.1f}")
    table.add_row("ratio, sentence by sentence", f"{figures['ratio']:.2f}")
    Console().print(table)
    return figures
