"""Speech asked of a farm, and made by the same stages without one."""

import base64
import io
import wave
from typing import Any

import httpx
import numpy as np

from speechmill.models.stage import Chunk, Resume, Stage, StageTask

from .harness import Farm


def heard(farm: Farm, asked: dict[str, Any]) -> bytes:
    """While it is made."""
    live = {"stream": True, "stream_format": "audio"}
    answer = httpx.post(f"{farm.base}/v1/audio/speech", json=asked | live, timeout=120)
    assert answer.status_code == 200, answer.text
    return answer.content


def whole(farm: Farm, asked: dict[str, Any]) -> bytes:
    answer = httpx.post(f"{farm.base}/v1/audio/speech", json=asked, timeout=120)
    assert answer.status_code == 200, answer.text
    return answer.content


def drive(stage: Stage, task: StageTask, chunks: list[Chunk]) -> tuple[int, bytes]:
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


def recording() -> bytes:
    """Two seconds of noise, as a WAV file."""
    noise = np.random.default_rng(3).normal(0, 3000, 2 * 44_100).astype("<i2")
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(44_100)
        sound.writeframes(noise.tobytes())
    return file.getvalue()


def clip() -> str:
    """The recording as a data URL."""
    return f"data:audio/wav;base64,{base64.b64encode(recording()).decode()}"
