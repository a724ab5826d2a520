"""Servers that go away for a while cost time, and nothing else."""

import time

import pytest

from speechmill.infra.embedded import EmbeddedS3, EmbeddedValkey
from speechmill.infra.protocol import end_job

from .harness import Farm, assert_same_pcm, eventually

TEXT = ("The birch canoe slid on the smooth planks.", "Rice is often served in round bowls.") * 4


@pytest.fixture
def own_valkey(tmp_path_factory: pytest.TempPathFactory) -> EmbeddedValkey:
    return EmbeddedValkey(tmp_path_factory.mktemp("own-valkey"), max_memory_mb=256)


@pytest.fixture
def own_s3(tmp_path_factory: pytest.TempPathFactory) -> EmbeddedS3:
    return EmbeddedS3(tmp_path_factory.mktemp("own-s3"))


def test_accepted_jobs_finish_after_valkey_was_killed_and_started_again(
    own_valkey: EmbeddedValkey, s3: EmbeddedS3, prefix: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    own_valkey.start()
    farm = Farm(own_valkey, s3, prefix, tmp_path_factory.mktemp("logs"), {"SPEECHMILL_WORKER__LEASE_S": "2"})
    try:
        farm.start_worker()
        farm.await_workers()
        calm = farm.submit(TEXT)
        farm.await_end([calm], 60)
        jobs = [farm.submit(TEXT) for _ in range(6)]
        eventually(lambda: farm.leased("decoder") > 0, 30, "the decoder is at work")
        assert own_valkey.process is not None
        own_valkey.process.kill()
        own_valkey.process.wait()
        time.sleep(1)
        own_valkey.start()
        farm.await_end(jobs, 90)
        for job in jobs:
            assert farm.record(job).state == "succeeded"
            assert_same_pcm(farm.out(job), farm.out(calm))
    finally:
        farm.stop()
        own_valkey.stop()


def test_results_arrive_after_the_object_store_was_down_for_twenty_seconds(
    valkey: EmbeddedValkey, own_s3: EmbeddedS3, prefix: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    own_s3.start()
    farm = Farm(valkey, own_s3, prefix, tmp_path_factory.mktemp("logs"), {"SPEECHMILL_WORKER__LEASE_S": "2"})
    try:
        farm.start_worker()
        farm.await_workers()
        assert own_s3.process is not None
        own_s3.process.kill()
        own_s3.process.wait()
        jobs = [farm.submit(TEXT[:2]) for _ in range(4)]
        time.sleep(20)
        assert {farm.record(job).state for job in jobs} == {"running"}
        own_s3.start()
        farm.await_end(jobs, 60)
        for job in jobs:
            assert farm.record(job).state == "succeeded"
            assert farm.stored(job) == farm.out(job)
    finally:
        farm.stop()
        own_s3.stop()


def test_a_job_that_nobody_owns_ends_at_once_when_it_is_cancelled(farm: Farm) -> None:
    farm.start_worker(["prosody"])
    farm.await_workers(["prosody"])
    job = farm.submit(TEXT[:1])
    eventually(lambda: farm.done(job, "prosody"), 10, "prosody is done, the decoder has not begun")
    assert farm.client.run(end_job(job, "cancelled")) == "cancelled"
    assert farm.record(job).state == "cancelled"
