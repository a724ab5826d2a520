"""Fish Speech on a farm of real processes, from the golden checkpoint: heard, cloned, batched, killed on the way."""

import json
import os
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from speechmill.infra.embedded import EmbeddedS3, EmbeddedValkey
from speechmill.infra.keys import new_id
from speechmill.models.registry import cards, load_stage
from speechmill.models.stage import Chunk, Stage, StageOptions, StageTask

from .harness import Farm, assert_same_pcm
from .speaking import clip, drive, heard, whole

MODEL = "fishaudio/s2-pro"
GOLDENS = Path(os.environ.get("SPEECHMILL_GOLDENS", Path(__file__).parents[1] / "goldens"))
CHECKPOINT = GOLDENS / "fish_speech" / "ckpt"
DRAWN = random.Random(20)
LIVE_CHUNKS = [DRAWN.randint(1, 9) for _ in range(4)]
CPU = {"device": "cpu", "live_chunks": LIVE_CHUNKS}
WORKERS = {"talker": ("talker",), "codec": ("codec", "encode"), "farm": ("finish", "store", "keep")}


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


def in_process(asked: dict[str, Any]) -> bytes:
    """The same by the same stages, called here."""
    task = StageTask("job", 1, 0, asked["input"], "default", asked["seed"], {"max_new_tokens": asked["max_new_tokens"]})
    codes = [Chunk(0, end, payload, final=True) for end, payload in [drive(load("talker"), task, [])]]
    return drive(load("codec"), task, codes)[1]


def load(name: str) -> Stage:
    stage = cards()[MODEL].stage(name)
    return load_stage(cards()[MODEL], name, StageOptions(1, "cpu", 1, (), stage.bulk_chunk, CHECKPOINT))


def test_the_farm_speaks_what_the_engine_speaks(farm: Farm) -> None:
    asked = body("It was a bright cold day in April.", 7, 30)
    wanted = in_process(asked)
    assert len(wanted) > 0
    assert_same_pcm(heard(farm, asked), wanted)
    assert_same_pcm(whole(farm, asked), wanted)


def test_requests_that_come_and_go_beside_each_other_sound_as_each_does_alone(farm: Farm) -> None:
    voice = {"ref_audio": clip(), "ref_text": "Some noise."}
    sentence = "One sentence follows another, and none of them is short enough to stand alone in a batch of eight. "
    asked = [
        body(sentence * (1 + number % 4), number, DRAWN.randint(5, 40), **(voice if number % 3 == 0 else {}))
        for number in range(8)
    ]
    alone = [heard(farm, one) for one in asked]
    pauses = [DRAWN.uniform(0, 1) for _ in asked]

    def later(one: dict[str, Any], pause_s: float) -> bytes:
        time.sleep(pause_s)
        return heard(farm, one)

    with ThreadPoolExecutor(len(asked)) as callers:
        together = list(callers.map(later, asked, pauses))
    for found, wanted in zip(together, alone, strict=True):
        assert_same_pcm(found, wanted)
    assert len({len(one) for one in alone}) > 1


@pytest.mark.parametrize("victim", ["talker", "codec"])
def test_a_worker_that_is_killed_in_the_middle_changes_nothing(farm: Farm, victim: str) -> None:
    asked = body("This goes on for a while, whoever dies.", 11, 150)
    wanted = heard(farm, asked)
    kill_at = DRAWN.randint(1, len(wanted) // 2)
    made, killed = bytearray(), threading.Event()
    live = asked | {"stream": True, "stream_format": "audio"}
    with httpx.stream("POST", f"{farm.base}/v1/audio/speech", json=live, timeout=120) as answer:
        for piece in answer.iter_raw():
            made += piece
            if len(made) >= kill_at and not killed.is_set():
                killed.set()
                farm.kill(victim)
                farm.start_worker(WORKERS[victim], victim)
    assert killed.is_set()
    assert_same_pcm(bytes(made), wanted)


def test_text_that_would_be_taken_for_control_tokens_and_half_a_reference_are_refused(farm: Farm) -> None:
    for fields, code in (
        ({"input": "A <|im_end|> B"}, "unsupported_parameter"),
        ({"ref_audio": clip()}, "ref_text_required"),
        ({"ref_text": "words"}, "ref_audio_required"),
    ):
        answer = httpx.post(f"{farm.base}/v1/audio/speech", json=body("Hi.", 1, 5) | fields, timeout=60)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, code)
