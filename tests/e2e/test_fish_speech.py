"""Fish Speech on a farm of real processes, from the golden checkpoint: heard, cloned, batched, killed on the way."""

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from speechmill.infra.embedded import EmbeddedS3, EmbeddedValkey
from speechmill.infra.keys import new_id
from speechmill.models.registry import cards
from speechmill.models.stage import StageTask

from .harness import Farm, assert_same_pcm
from .speaking import (
    WORKERS,
    assert_each_as_alone,
    assert_nothing_changes_when_workers_are_killed,
    data_url,
    heard,
    noise,
    refusal,
    spoken_in_process,
    whole,
)

MODEL = "fishaudio/s2-pro"
GOLDENS = Path(os.environ.get("SPEECHMILL_GOLDENS", Path(__file__).parents[1] / "goldens"))
CHECKPOINT = GOLDENS / "fish_speech" / "ckpt"
DRAWN = random.Random(20)
CPU = {"device": "cpu", "live_chunks": [DRAWN.randint(1, 9) for _ in range(4)]}
CLIP = data_url(noise(44_100))


@pytest.fixture(scope="module")
def farm(valkey: EmbeddedValkey, s3: EmbeddedS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    farm = Farm(valkey, s3, new_id("t"), tmp_path_factory.mktemp("fish"))
    farm.settings |= {
        "SPEECHMILL_MODELS": json.dumps([MODEL]),
        "SPEECHMILL_CHECKPOINTS": json.dumps({MODEL: str(CHECKPOINT)}),
        "SPEECHMILL_STAGES": json.dumps({f"{MODEL}/{stage}": CPU for stage in ("talker", "codec", "encode")}),
        "SPEECHMILL_WORKER__LEASE_S": "2",
    }
    farm.start_api()
    for name, stages in WORKERS.items():
        farm.start_worker(stages, name)
    farm.await_ready()
    yield farm
    farm.stop()


def body(text: str, seed: int, frames: int, **fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "input": text, "seed": seed, "max_new_tokens": frames, "response_format": "pcm", **fields}


def test_the_farm_speaks_what_the_engine_speaks(farm: Farm) -> None:
    asked = body("It was a bright cold day in April.", 7, 30)
    task = StageTask("job", 1, 0, asked["input"], "default", 7, {"max_new_tokens": 30})
    wanted = spoken_in_process(cards()[MODEL], CHECKPOINT, task)
    assert len(wanted) > 0
    assert_same_pcm(heard(farm, asked), wanted)
    assert_same_pcm(whole(farm, asked), wanted)


def test_requests_that_come_and_go_beside_each_other_sound_as_each_does_alone(farm: Farm) -> None:
    voice = {"ref_audio": CLIP, "ref_text": "Some noise."}
    sentence = "One sentence follows another, and none of them is short enough to stand alone in a batch of eight. "
    asked = [
        body(sentence * (1 + number % 4), number, DRAWN.randint(5, 40), **(voice if number % 3 == 0 else {}))
        for number in range(8)
    ]
    assert_each_as_alone(farm, asked, DRAWN)


def test_workers_that_are_killed_in_the_middle_change_nothing(farm: Farm) -> None:
    asked = body("This goes on for a while, whoever dies.", 11, 150)
    assert_nothing_changes_when_workers_are_killed(farm, asked, DRAWN)


def test_text_that_would_be_taken_for_control_tokens_and_half_a_reference_are_refused(farm: Farm) -> None:
    for fields, code in (
        ({"input": "A <|im_end|> B"}, "unsupported_parameter"),
        ({"ref_audio": CLIP}, "ref_text_required"),
        ({"ref_text": "words"}, "ref_audio_required"),
    ):
        assert refusal(farm, body("Hi.", 1, 5) | fields) == (400, code)
