"""`speechmill bench overload`: more streams than a stage can keep playing, by arrival and by deadline, in one run.

The `tone` engine stands in for a model whose step takes time, in one stage of two; everything else is the real farm,
heard over HTTP at the pace at which one listens.
"""

import asyncio
import json
import random
import time
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from speechmill.cli.bench.farm import whole_farm
from speechmill.cli.bench.hearing import Heard, by_http
from speechmill.cli.bench.load import percentile
from speechmill.cli.bench.texts import line_text
from speechmill.workers.urgency import HEARABLE_S

MODEL = "Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice"
STEP_S, SLOT_S = 0.01, 0.02
"""What a step takes for itself, and for each stream in it."""
PIECE_S = 0.24
"""Audio that a step makes of each stream: three frames."""
AUDIO_PER_S = PIECE_S / SLOT_S
"""At most: that many streams could be kept playing if steps cost nothing for themselves."""
S_PER_CHAR = 0.06
"""Of the tone."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one run. A gap is a silence after a stream's first sound."""

    scheduling: str
    asked: int
    complete: int
    with_gaps: float
    """Share of the streams that were heard."""
    in_gaps: float
    """Share of the time from their first to their last sound."""
    gap_p99_ms: float
    """Of each stream's longest."""
    first_p50_s: float
    first_p95_s: float
    audio_per_s: float


def _text(index: int) -> str:
    """One to three sentences, each of which is a segment."""
    return " ".join(line_text(index + offset) for offset in range(1 + index % 3))


async def _listen(port: int, texts: list[str], pauses_s: list[float]) -> tuple[list[Heard], float]:
    """Ask for each text after its pause, whatever has become of those before; also how long all of it took."""
    await by_http(port, _body(line_text(0)), Heard())
    began, heard, listening = time.perf_counter(), [Heard() for _ in texts], list[asyncio.Task[None]]()
    for text, pause_s, one in zip(texts, pauses_s, heard, strict=True):
        await asyncio.sleep(pause_s)
        listening.append(asyncio.create_task(by_http(port, _body(text), one)))
    await asyncio.gather(*listening, return_exceptions=True)
    return heard, time.perf_counter() - began


def _body(text: str) -> bytes:
    body = {"model": MODEL, "input": text, "response_format": "pcm", "stream_format": "audio", "stream": True}
    return json.dumps(body).encode()


def _run(scheduling: str, stage: str, apart: bool, texts: list[str], pauses_s: list[float]) -> Figures:
    sets = [f"models={json.dumps([MODEL])}", "test.stand_in=true", f"worker.scheduling={scheduling}"]
    sets.append(f"test.costs={json.dumps({stage: [STEP_S, SLOT_S]})}")
    sets.append(f"stages={json.dumps({f'{MODEL}/codec': {'live_chunks': [3]}})}")
    processes = [["talker"], ["codec"], ["farm"]] if apart else [["models"], ["farm"]]
    sets.append(f"workers={json.dumps([{'stages': stages} for stages in processes])}")
    with whole_farm(sets) as port:
        heard, took_s = asyncio.run(_listen(port, texts, pauses_s))
    return _figures(scheduling, heard, took_s)


def _figures(scheduling: str, heard: list[Heard], took_s: float) -> Figures:
    sounded = [one for one in heard if one.audio_s]
    gaps_s = [[gap_s for gap_s in one.gaps_s if gap_s > HEARABLE_S] for one in sounded]
    silent_s, audio_s = sum(map(sum, gaps_s)), sum(one.audio_s for one in sounded)
    return Figures(
        scheduling=scheduling,
        asked=len(heard),
        complete=sum(one.complete for one in heard),
        with_gaps=sum(map(bool, gaps_s)) / len(sounded),
        in_gaps=silent_s / (silent_s + audio_s),
        gap_p99_ms=1000 * percentile([max(gaps, default=0.0) for gaps in gaps_s], 0.99),
        first_p50_s=percentile([one.first_s for one in sounded], 0.5),
        first_p95_s=percentile([one.first_s for one in sounded], 0.95),
        audio_per_s=audio_s / took_s,
    )


def measure(stage: str, seconds: float, factor: float, apart: bool) -> list[dict[str, Any]]:
    """Run, print, answer the figures. The same requests come at the same times in both runs."""
    chance = random.Random(1)
    texts, pauses_s = list[str](), list[float]()
    while sum(pauses_s) < seconds:
        texts.append(_text(len(texts)))
        pauses_s.append(chance.expovariate(factor * AUDIO_PER_S / (S_PER_CHAR * len(texts[-1]))))
    console, figures = Console(), list[Figures]()
    for scheduling in ("arrival", "deadline"):
        console.print(f"{len(texts)} streams by {scheduling}, in about {factor * seconds:.0f} s")
        figures.append(_run(scheduling, stage, apart, texts, pauses_s))
    _show(console, figures, stage, seconds, factor)
    return [asdict(one) for one in figures]


def _show(console: Console, figures: list[Figures], stage: str, seconds: float, factor: float) -> None:
    table = Table()
    table.add_column("by", no_wrap=True)
    for name in ("asked", "heard out", "with gaps", "in gaps", "gap p99", "first p50", "first p95", "audio s/s"):
        table.add_column(name)
    for one in figures:
        shares = (f"{one.with_gaps:.1%}", f"{one.in_gaps:.1%}", f"{one.gap_p99_ms:.0f} ms")
        first = (f"{one.first_p50_s:.1f} s", f"{one.first_p95_s:.1f} s")
        table.add_row(one.scheduling, str(one.asked), str(one.complete), *shares, *first, f"{one.audio_per_s:.1f}")
    console.print(table)
    console.print(
        f"a tone for a model, whose {stage} takes {STEP_S * 1000:g} ms for a step and {SLOT_S * 1000:g} ms for each"
        f" stream, of which it makes {PIECE_S:g} s; for {seconds:g} s {factor:g} times as much is asked for as it can"
    )
