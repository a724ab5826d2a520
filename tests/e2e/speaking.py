"""Being spoken to by a farm in several ways, and by the same stages without one."""

import base64
import io
import random
import threading
import time
import wave
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from speechmill.models.card import ModelCard
from speechmill.models.registry import load_stage
from speechmill.models.stage import Chunk, Resume, Stage, StageOptions, StageTask

from .harness import Farm, assert_same_pcm

LIVE = {"stream": True, "stream_format": "audio"}
WORKERS = {"talker": ("talker",), "codec": ("codec", "encode"), "farm": ("finish", "store", "keep")}


def answer(farm: Farm, asked: dict[str, Any]) -> httpx.Response:
    made = httpx.post(f"{farm.base}/v1/audio/speech", json=asked, timeout=120)
    assert made.status_code == 200, made.text
    return made


def whole(farm: Farm, asked: dict[str, Any]) -> bytes:
    return answer(farm, asked).content


def heard(farm: Farm, asked: dict[str, Any]) -> bytes:
    """While it is made."""
    return whole(farm, asked | LIVE)


def heard_by_somebody_who(act: Callable[[], None], after: int, farm: Farm, asked: dict[str, Any]) -> bytes:
    """The same, and once so many bytes are there, something happens."""
    made, done = bytearray(), threading.Event()
    with httpx.stream("POST", f"{farm.base}/v1/audio/speech", json=asked | LIVE, timeout=120) as answer:
        for piece in answer.iter_raw():
            made += piece
            if len(made) >= after and not done.is_set():
                done.set()
                act()
    assert done.is_set()
    return bytes(made)


def assert_nothing_changes_when_workers_are_killed(farm: Farm, asked: dict[str, Any], chance: random.Random) -> None:
    """Talker and codec, in either order, in the first half of what is heard."""
    victims = chance.sample(["talker", "codec"], 2)

    def others() -> None:
        for victim in victims:
            farm.kill(victim)
            farm.start_worker(WORKERS[victim], victim)

    wanted = heard(farm, asked)
    kill_at = chance.randint(1, len(wanted) // 2)
    assert_same_pcm(heard_by_somebody_who(others, kill_at, farm, asked), wanted)
    for victim in victims:
        farm.await_started(victim)


def assert_each_as_alone(farm: Farm, asked: Sequence[dict[str, Any]], chance: random.Random) -> None:
    """Requests that come and go beside each other sound as each does by itself."""
    alone = [heard(farm, one) for one in asked]
    pauses = [chance.uniform(0, 1) for _ in asked]

    def later(one: dict[str, Any], pause_s: float) -> bytes:
        time.sleep(pause_s)
        return heard(farm, one)

    with ThreadPoolExecutor(len(asked)) as callers:
        together = list(callers.map(later, asked, pauses))
    for found, wanted in zip(together, alone, strict=True):
        assert_same_pcm(found, wanted)
    assert len({len(one) for one in alone}) > 1


def refusal(farm: Farm, asked: dict[str, Any]) -> tuple[int, str]:
    answer = httpx.post(f"{farm.base}/v1/audio/speech", json=asked, timeout=60)
    return answer.status_code, answer.json()["error"]["code"]


def spoken_in_process(card: ModelCard, checkpoint: Path, task: StageTask) -> bytes:
    """By a talker and a codec that are called here."""

    def load(name: str) -> Stage:
        return load_stage(card, name, StageOptions(1, "cpu", 1, (), card.stage(name).bulk_chunk, checkpoint))

    end, codes = _drive(load("talker"), task, [])
    return _drive(load("codec"), task, [Chunk(0, end, codes, final=True)])[1]


def _drive(stage: Stage, task: StageTask, chunks: list[Chunk]) -> tuple[int, bytes]:
    """Units and bytes that one slot emits."""
    stage.open(0, task, Resume())
    for chunk in chunks:
        stage.feed(0, chunk)
    made, units, final = [], 0, False
    while not final:
        for emission in stage.step([0]):
            made.append(emission.payload)
            units += emission.frames
            final = emission.final
    stage.close(0)
    return units, b"".join(made)


def noise(rate_hz: int) -> bytes:
    """A WAV file of two seconds."""
    samples = np.random.default_rng(3).normal(0, 3000, 2 * rate_hz).astype("<i2")
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(rate_hz)
        sound.writeframes(samples.tobytes())
    return file.getvalue()


def data_url(wav: bytes) -> str:
    return f"data:audio/wav;base64,{base64.b64encode(wav).decode()}"
