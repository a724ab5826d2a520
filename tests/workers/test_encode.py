"""Jobs that derive features from a recording: `encode`, then `keep`."""

import hashlib
import json
import time
from collections.abc import Callable, Iterator

import pytest

from speechmill.configs.settings import load
from speechmill.infra.embedded import EmbeddedS3, EmbeddedValkey
from speechmill.infra.keys import LogRef, Task, features_key, new_id
from speechmill.models.stage import Resume, StageOptions, StageTask
from speechmill.models.tone import stages as tone
from speechmill.workers.worker import assign

from .toy import CARD, Encoder, ToyFarm, features_of


@pytest.fixture
def farm(valkey: EmbeddedValkey, s3: EmbeddedS3, prefix: str) -> Iterator[ToyFarm]:
    farm = ToyFarm(valkey, s3, prefix, worker={"drain_s": 0.2})
    yield farm
    farm.stop()


def clip(what: str = "a recording") -> bytes:
    """Nobody else's."""
    return f"{what} {new_id('clip')}".encode()


def key_of(recording: bytes, mode: str = "xvec") -> str:
    return features_key("toy", mode, 3, hashlib.sha256(recording).hexdigest())


def wait_for(true: Callable[[], object], within_s: float = 10) -> None:
    until = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_an_object_is_named_by_model_mode_version_and_recording() -> None:
    assert features_key("Owner/Model-1.7B", "icl", 2, "abc") == "features/Owner--Model-1.7B/icl/v2/abc"


def test_features_are_kept_under_the_recording_s_name_for_as_long_as_was_asked(farm: ToyFarm) -> None:
    farm.start(encoder=Encoder())
    recording = clip()
    job = farm.submit_recording(recording, "icl")
    assert farm.state(job) == "succeeded"
    key, features = key_of(recording, "icl"), features_of(recording, "icl")
    assert farm.record(job).result == {
        "key": key,
        "bytes": len(features),
        "sha256": hashlib.sha256(features).hexdigest(),
    }
    assert b"".join(farm.objects.get(key)) == features
    due = farm.client.server("control").zscore(farm.client.keys.expiry(), key)
    assert due is not None
    assert 900 < due - time.time() <= 1000


def test_features_that_somebody_filed_before_stay_and_are_the_result(farm: ToyFarm) -> None:
    farm.start(encoder=Encoder())
    recording = clip()
    farm.put(key_of(recording), b"made on another device")
    job = farm.submit_recording(recording)
    assert farm.state(job) == "succeeded"
    assert b"".join(farm.objects.get(key_of(recording))) == b"made on another device"
    result = farm.record(job).result
    assert result is not None
    assert result["sha256"] == hashlib.sha256(b"made on another device").hexdigest()


@pytest.mark.parametrize(
    ("recording", "why"), [(b"refuse", "cannot hear this"), (b"", "the model found nothing in this recording")]
)
def test_a_recording_that_the_model_cannot_use_fails_its_job(farm: ToyFarm, recording: bytes, why: str) -> None:
    farm.start(encoder=Encoder())
    job = farm.submit_recording(recording)
    assert farm.state(job) == "failed"
    assert farm.record(job).error == {"code": "generation_failed", "message": why}


def test_another_worker_goes_on_where_the_log_ends(farm: ToyFarm) -> None:
    first, second = Encoder(), Encoder()
    _, worker = farm.start(encoder=first)
    recording = clip("wait")
    job = farm.submit_recording(recording)
    log = farm.client.keys.log_meta(LogRef(Task(job, 1, 0, "encode"), "control"))
    wait_for(lambda: farm.client.server("control").hget(log, "end") == b"1")
    worker.drain()
    second.gate.set()
    farm.start(encoder=second)
    assert farm.state(job) == "succeeded"
    assert second.resumed == [1]
    assert b"".join(farm.objects.get(key_of(recording))) == features_of(recording, "xvec")


def test_the_log_says_which_version_of_features_it_holds(farm: ToyFarm) -> None:
    encoder = Encoder()
    farm.start(encoder=encoder)
    job = farm.submit_recording(clip("wait"))
    log = farm.client.keys.log_meta(LogRef(Task(job, 1, 0, "encode"), "control"))
    wait_for(lambda: farm.client.server("control").hget(log, "end") == b"1")
    header = farm.client.server("control").hget(log, "header")
    assert header is not None
    assert json.loads(header) == {"unit": "codes", "rate": 1.0, "dtype": "features", "channels": 1, "version": 3}
    encoder.gate.set()
    assert farm.state(job) == "succeeded"


def test_a_worker_of_a_model_reads_recordings_where_the_model_can_and_keeps_features_with_the_farm_s_stages(
    farm: ToyFarm,
) -> None:
    settings = load(assignments=["test.stand_in=true"])
    assert assign(settings, ["toy"], ["models"]).model_stages == (("toy", "voice"), ("toy", "encode"))
    assert assign(settings, ["toy"], ["farm"]).farm_stages == ("finish", "store", "keep")
    assert assign(settings, ["hibari"], ["models"]).model_stages == (("hibari", "prosody"), ("hibari", "decoder"))


def test_the_stand_in_finds_the_same_in_a_recording_wherever_it_goes_on() -> None:
    stage = tone.load(CARD, "encode", StageOptions(slots=2))
    task = StageTask("job", 1, 0, "", "", 0, assets={"clip": b"hear me"})
    made = []
    for slot, begins in enumerate((0, 3)):
        stage.open(slot, task, Resume(end=begins))
        (emission,) = stage.step([slot])
        assert emission.final
        assert len(emission.payload) == 4 * emission.frames
        made.append(emission.payload)
    assert made[1] == made[0][12:]
