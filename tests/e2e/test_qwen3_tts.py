"""Clones by Qwen3-TTS on a farm of real processes, from the golden checkpoint: talker and codec hear the reference."""

import json
import os
import threading
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest

from speechmill.infra.embedded import EmbeddedS3, EmbeddedValkey
from speechmill.infra.keys import new_id
from speechmill.infra.precomputed import MANIFEST
from speechmill.models.registry import cards, load_stage
from speechmill.models.stage import Chunk, Stage, StageOptions, StageTask

from .harness import Farm, assert_same_pcm
from .speaking import clip, drive, heard, recording

MODEL = "Qwen/Qwen3-TTS-12Hz-1.7B-Base"
GOLDENS = Path(os.environ.get("SPEECHMILL_GOLDENS", Path(__file__).parents[1] / "goldens"))
CHECKPOINT = GOLDENS / "qwen3_tts" / "base"
WORKERS = {"codec": ("codec",), "others": ("talker", "encode", "finish", "store", "keep")}
TEXT, WORDS = "This is a small test of speech.", "Some noise."
FRAMES = 60
LONG_S = 1.5


@cache
def stage(name: str) -> Stage:
    return load_stage(cards()[MODEL], name, StageOptions(1, "cpu", 1, (), 0, CHECKPOINT))


@cache
def features(mode: str) -> bytes:
    """What `encode` makes of the recording."""
    asked = StageTask("job", 1, 0, "", "", 0, {"mode": mode}, {"clip": recording()})
    return drive(stage("encode"), asked, [])[1]


def in_process(mode: str, seed: int) -> bytes:
    """What the stages speak when they are called here."""
    params = {"max_new_tokens": FRAMES} | ({"ref_text": WORDS} if mode == "icl" else {"x_vector_only_mode": True})
    asked = StageTask("job", 1, 0, TEXT, "", seed, params, {"features": features(mode)})
    frames, codes = drive(stage("talker"), asked, [])
    return drive(stage("codec"), asked, [Chunk(0, frames, codes, final=True)])[1]


@cache
def long_seed(mode: str) -> int:
    """The first with which the model, whose weights are random, says enough."""
    rate = cards()[MODEL].sample_rate
    return next(seed for seed in range(100) if len(in_process(mode, seed)) > 2 * rate * LONG_S)


@pytest.fixture(scope="module")
def farm(valkey: EmbeddedValkey, s3: EmbeddedS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    voices = tmp_path_factory.mktemp("voices")
    (voices / "noise.safetensors").write_bytes(features("icl"))
    manifest = {
        "in_context": {"file": "noise.safetensors", "mode": "icl", "ref_text": WORDS},
        "by_timbre": {"file": "noise.safetensors", "mode": "xvec"},
    }
    (voices / MANIFEST).write_text(json.dumps({"schema_version": 1, "model_type": "qwen3_tts", "voices": manifest}))
    farm = Farm(valkey, s3, new_id("t"), tmp_path_factory.mktemp("qwen"))
    cpu = {"device": "cpu", "live_chunks": [1, 2, 4]}
    farm.settings |= {
        "SPEECHMILL_MODELS": json.dumps([MODEL]),
        "SPEECHMILL_CHECKPOINTS": json.dumps({MODEL: str(CHECKPOINT)}),
        "SPEECHMILL_STAGES": json.dumps({f"{MODEL}/{name}": cpu for name in ("talker", "codec", "encode")}),
        "SPEECHMILL_VOICES__PRECOMPUTED": json.dumps([str(voices)]),
        "SPEECHMILL_WORKER__LEASE_S": "2",
    }
    farm.start_api()
    for name, stages in WORKERS.items():
        farm.start_worker(stages, name)
    farm.await_ready()
    yield farm
    farm.stop()


def body(seed: int, **speaker: Any) -> dict[str, Any]:
    asked = {"model": MODEL, "input": TEXT, "seed": seed, "max_new_tokens": FRAMES, "response_format": "pcm"}
    return asked | speaker


SPEAKERS = {
    "icl": [{"ref_audio": clip(), "ref_text": WORDS}, {"voice": "in_context"}],
    "xvec": [{"ref_audio": clip(), "x_vector_only_mode": True}, {"voice": "by_timbre"}],
}


@pytest.mark.parametrize("mode", SPEAKERS)
def test_a_recording_and_what_was_computed_of_it_beforehand_sound_alike(farm: Farm, mode: str) -> None:
    for speaker in SPEAKERS[mode]:
        assert_same_pcm(heard(farm, body(3, **speaker)), in_process(mode, 3))


def test_a_codec_that_is_killed_hears_the_reference_again_and_changes_nothing(farm: Farm) -> None:
    asked = body(long_seed("icl"), voice="in_context")
    wanted = in_process("icl", asked["seed"])
    made, killed = bytearray(), threading.Event()
    live = asked | {"stream": True, "stream_format": "audio"}
    with httpx.stream("POST", f"{farm.base}/v1/audio/speech", json=live, timeout=120) as answer:
        for piece in answer.iter_raw():
            made += piece
            if not killed.is_set():
                killed.set()
                farm.kill("codec")
                farm.start_worker(WORKERS["codec"], "codec")
    assert killed.is_set()
    assert_same_pcm(bytes(made), wanted)
