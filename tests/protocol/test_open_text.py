"""A text that is still being written when its job is submitted: who is told of it, and what becomes of it."""

import json
from dataclasses import replace

import pytest

from speechmill.infra import jobs
from speechmill.infra.keys import text_log
from speechmill.infra.messages import JobDetails
from speechmill.infra.open_text import UNSEALED_S, TextWriter
from speechmill.infra.protocol import complete_text, reopen, retry

from .farm import CODEC, REQUEST, STORE, TALKER, TTL_S, Farm

OPEN = replace(REQUEST, open_text=True)


def opened(farm: Farm, job: str, *pieces: str) -> TextWriter:
    """The text's log, with these pieces in it."""
    writer = TextWriter(job, TTL_S)
    assert farm.run(writer.begin()).state == "ok"
    assert [farm.run(writer.append(piece)) for piece in pieces] == ["ok"] * len(pieces)
    return writer


def complete(farm: Farm, job: str, text: str) -> str:
    return str(farm.run(complete_text(job, text, JobDetails(text_tokens=len(text)), json.dumps({"input": text}))))


def test_every_stage_is_told_that_the_text_is_open(farm: Farm) -> None:
    farm.submit(segments=("",), request=OPEN)
    assert [farm.claim(pool).open_text for pool in (TALKER, CODEC)] == [True, True]
    farm.submit()
    assert not farm.claim(TALKER).open_text


def test_the_log_holds_the_pieces_as_bytes_until_it_is_sealed(farm: Farm) -> None:
    job = farm.submit(segments=("",), request=OPEN)
    writer = opened(farm, job, "Hé", "llo")
    assert farm.audio(text_log(job)).decode() == "Héllo"
    assert farm.run(writer.seal()) == farm.run(writer.seal()) == "ok"
    assert farm.run(writer.append("!")) == "lost"
    assert int(farm.server.hget(farm.keys.log_meta(text_log(job)), "end") or 0) == len("Héllo".encode())


def test_text_is_taken_while_memory_is_short(farm: Farm) -> None:
    farm.server.set(farm.keys.pressure(), 1)
    opened(farm, farm.submit(segments=("",), request=OPEN), "Hello")


def test_the_writer_hears_that_the_text_is_lost(farm: Farm) -> None:
    job = farm.submit(segments=("",), request=OPEN)
    writer = opened(farm, job, "Hello")
    farm.lose(text_log(job))
    assert farm.run(writer.append(" there")) == "lost"
    assert farm.run(writer.seal()) == "lost"


def test_a_text_goes_soon_when_its_writer_says_nothing_and_stays_once_it_is_complete(farm: Farm) -> None:
    job = farm.submit(segments=("",), request=OPEN)
    writer = opened(farm, job, "Hello", " there")
    keys = farm.keys.log(text_log(job)), farm.keys.log_meta(text_log(job))
    assert all(0 < farm.server.ttl(key) <= UNSEALED_S for key in keys)
    for key in keys:
        farm.server.expire(key, 5)
    farm.run(writer.hold())
    assert all(5 < farm.server.ttl(key) <= UNSEALED_S for key in keys)
    farm.run(writer.seal())
    assert all(UNSEALED_S < farm.server.ttl(key) <= TTL_S for key in keys)


def test_a_reader_cannot_have_the_text_made_again(farm: Farm) -> None:
    job = farm.submit(segments=("",), request=OPEN)
    farm.claim(TALKER)
    assert farm.run(reopen(text_log(job).task, 0)) == "running"
    assert farm.ready(TALKER) == []


def test_a_complete_text_is_what_the_job_says_of_itself(farm: Farm) -> None:
    job = farm.submit(segments=("",), request=OPEN, asked='{"input": "He"}')
    assert complete(farm, job, "Hello") == "ok"
    assert farm.record(job).details.text_tokens == 5
    assert farm.server.get(farm.keys.asked(job)) == b'{"input": "Hello"}'
    assert complete(farm, "job_unknown", "Hello") == "unknown"


@pytest.mark.parametrize("state", ["failed", "cancelled", "expired"])
def test_a_new_take_has_all_of_the_text_or_there_is_none(farm: Farm, state: str) -> None:
    job = farm.submit(segments=("",), request=OPEN)
    farm.end_job(job, state)
    assert farm.run(retry(job)) == "incomplete"
    complete(farm, job, "Hello")
    assert farm.run(retry(job)) == "ok"
    claimed = farm.claim(TALKER)
    assert (claimed.task.take, claimed.open_text, claimed.text) == (2, False, "Hello")


def test_a_successor_is_still_told_to_read_the_log_when_the_text_is_complete(farm: Farm) -> None:
    job = farm.submit(segments=("",), request=OPEN)
    farm.claim_lapsed(TALKER)
    complete(farm, job, "Hello")
    farm.reap()
    assert farm.claim(TALKER, "other").open_text


def test_the_text_s_log_goes_with_the_job_s_others(farm: Farm) -> None:
    job = farm.submit(segments=("",), request=OPEN)
    farm.run(opened(farm, job, "Hello").seal())
    complete(farm, job, "Hello")
    for pool in (TALKER, CODEC, "farm/finish"):
        farm.write_all(farm.claim(pool))
    farm.commit(farm.claim(STORE), '{"key": "audio/x"}')
    assert text_log(job).task in jobs.read_tasks(farm.client, job)
    farm.client.run_all(jobs.retirement(jobs.read_tasks(farm.client, job), ("talker", "codec"), 60))
    assert 0 < farm.server.ttl(farm.keys.log(text_log(job))) <= 60
    farm.assert_gone_in_time(job)


def test_who_listened_hears_why_a_cancelled_job_ended_and_its_text_is_taken_no_more(farm: Farm) -> None:
    job = farm.submit(segments=("",), request=OPEN)
    writer = opened(farm, job, "Hello")
    jobs.end(farm.client, job, "cancelled", "", 0)
    assert farm.run(writer.append(" there")) == "lost"
    farm.assert_gone_in_time(job)
