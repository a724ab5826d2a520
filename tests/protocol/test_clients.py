"""The two clients, and servers that come back without the functions."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from speechmill.configs.settings import KeyLimits
from speechmill.infra import consents, deliveries, groups, listing, protocol, quota, replies, voices, webhooks
from speechmill.infra.client import AsyncClient, Client, library
from speechmill.infra.consents import ConsentRecord
from speechmill.infra.deliveries import Attempt, Turn
from speechmill.infra.embedded import EmbeddedValkey
from speechmill.infra.keys import Keys, Task, new_id, out_log
from speechmill.infra.messages import Claim, JobDetails
from speechmill.infra.protocol import Append, Call, Limits
from speechmill.infra.voices import VoiceRecord

from .farm import LEASE_MS, TALKER, TTL_S, Farm, submission


@pytest.fixture
def own_valkey(tmp_path: Path) -> Iterator[EmbeddedValkey]:
    """A server that the test may kill."""
    server = EmbeddedValkey(tmp_path / "valkey", max_memory_mb=64)
    server.start()
    yield server
    server.stop()


def voice() -> VoiceRecord:
    return VoiceRecord(
        id="voice_1",
        name="Ann",
        project="a",
        consent="yes",
        created_at=1,
        kind="audio",
        mime_type="audio/wav",
        file_size=1,
        sample_key="voices/a/voice_1/sample.wav",
    )


def consent() -> ConsentRecord:
    return ConsentRecord(
        id="cons_1",
        name="Ann",
        project="a",
        language="en",
        created_at=1,
        mime_type="audio/wav",
        file_size=1,
        recording_key="consents/a/cons_1.wav",
    )


def endpoint() -> webhooks.Endpoint:
    secrets = webhooks.Secrets("whsec_AAAA")
    plain: dict[str, Any] = {"name": "n", "url": "https://x.example", "event_types": ("webhook.test",)}
    return webhooks.Endpoint(id="whep_1", project="a", **plain, secrets=secrets, created_at=1, updated_at=1)


def delivery() -> deliveries.Delivery:
    return deliveries.Delivery(id="whdel_1", project="a", target="whep_1", message={"id": "evt_1"}, created_at=1)


def one_of_each(job: str) -> list[Call[Any]]:
    """Every function once, with answers that do not depend on time."""
    task, log = Task(job, 1, 0, "talker"), out_log(job, 1)
    return [
        protocol.submit(submission(job=job), Limits()),
        protocol.dispatch("toy", "interactive", "talker"),
        protocol.beat("w", "{}", 1000, [(TALKER, 1)]),
        protocol.renew(LEASE_MS, [(task, "1:x", 0)]),
        protocol.handback(task, "1:x"),
        protocol.commit(task, "1:x"),
        protocol.advance(task, "1:x", 1, 1),
        protocol.reopen(task, 0),
        protocol.reap(),
        protocol.follow(log, "r", TTL_S),
        protocol.fence(log, "1:x", -1, TTL_S, "{}"),
        protocol.emit(log, "1:x", Append(0, 2, 1, b"ab"), TTL_S),
        protocol.keep(log, TTL_S),
        protocol.seal(log, "1:x", "{}"),
        protocol.follow(log, "r", TTL_S),
        protocol.unfollow(log, "r"),
        protocol.trim(log, 2),
        protocol.close(log, "{}", TTL_S),
        protocol.retire([log], 0, "chunks"),
        protocol.end_job(job, "cancelled"),
        protocol.complete_text(job, "all of it", JobDetails(), "{}"),
        protocol.retry(job),
        protocol.leave("w", [TALKER]),
        voices.check_voice("a", "Ann", "overwrite", 5),
        voices.put_voice(voice(), "overwrite", 5),
        voices.find_voice("a", "ann"),
        voices.drop_voice("a", "voice_1"),
        voices.hasten(["features/x"]),
        consents.put_consent(consent()),
        consents.drop_consent("a", "cons_1"),
        webhooks.put_endpoint(endpoint()),
        deliveries.queue_deliveries([delivery()]),
        deliveries.due_targets(1, LEASE_MS),
        deliveries.next_delivery("whep_1", "t", LEASE_MS),
        deliveries.settle_delivery(Turn(delivery(), 0), Attempt(1, 1, 204, ""), "delivered", "delivered"),
        deliveries.leave_target("whep_1", "t"),
        webhooks.drop_endpoint("a", "whep_1"),
        listing.list_page("a", "asc", "", 0, 1, 5, listing.Wanted()),
        listing.delete_job("job_unknown", False),
        listing.fade_jobs(["job_unknown"], 60),
        replies.begin_reply("s", "d", "h", 60),
        replies.hold_reply("s", "h", 60),
        replies.put_reply("s", "h", b"{}", 60),
        replies.drop_reply("s", "h"),
        groups.create_group("jobgrp_1", {"kind": "jobs", "project": "a", "total": 1, "rejected": 0, "retention_s": 1}),
        groups.due_groups(1, 60),
        groups.tend_group("jobgrp_1", 60),
        groups.close_group("jobgrp_1", "cancelled"),
        groups.reopen_group("jobgrp_1", "cancelled"),
        groups.retry_group("jobgrp_1", ["failed"]),
        groups.retried("jobgrp_1", None),
        groups.begin_batch("batch_1", {}),
        groups.end_batch("batch_1", "failed", {}),
        quota.charge("key", KeyLimits(), 1, 5),
        quota.account("key", 0, 1),
        quota.sit("seats", "me", 1, 60),
        quota.rise("seats", "me"),
        protocol.press(1, "chunks"),
        protocol.expire("audio/key", 1.5),
        protocol.press(1, "chunks"),
        protocol.prolong("audio/x", 1),
    ]


def test_both_clients_answer_the_same(farm: Farm, valkey: EmbeddedValkey, prefix: str) -> None:
    async def ask(job: str) -> list[Any]:
        client = AsyncClient(valkey.url, valkey.url, Keys(f"{prefix}async"))
        await client.load()
        answers = [await client.run(call) for call in one_of_each(job)]
        await client.close()
        return answers

    job = new_id("job")
    answers = [farm.run(call) for call in one_of_each(job)]
    assert asyncio.run(ask(job)) == answers


def test_a_pipeline_answers_in_order(farm: Farm) -> None:
    job = new_id("job")
    answers = farm.client.run_all(one_of_each(job))
    assert answers[-4:] == ["ok"] * 4
    assert answers[0].job == job


def test_every_function_of_the_library_is_among_these(farm: Farm) -> None:
    prefix = library()[1]
    found = farm.server.execute_command("FUNCTION", "LIST", "LIBRARYNAME", prefix.rstrip("_"))
    registered = set(re.findall(rf"{prefix}(\w+)", str(found)))
    assert registered == {call.function for call in one_of_each("j")} | {"claim", "poke"}


def test_functions_that_were_flushed_are_loaded_again(farm: Farm) -> None:
    farm.server.execute_command("FUNCTION", "FLUSH")
    job = farm.submit()
    farm.server.execute_command("FUNCTION", "FLUSH")
    first, second = farm.client.run_all([protocol.end_job(job, "cancelled"), protocol.retry(job)])
    assert (first, second) == ("cancelled", "ok")


def test_functions_that_were_flushed_are_loaded_again_by_the_api(valkey: EmbeddedValkey, prefix: str) -> None:
    async def ask() -> str:
        client = AsyncClient(valkey.url, valkey.url, Keys(prefix))
        await client.server("control").execute_command("FUNCTION", "FLUSH")
        answer = await client.run(protocol.end_job("job_unknown", "cancelled"))
        await client.close()
        return answer

    assert asyncio.run(ask()) == "unknown"


def test_accepted_work_survives_a_killed_server(own_valkey: EmbeddedValkey) -> None:
    client = Client(own_valkey.url, own_valkey.url, Keys("tts"))
    client.load()
    farm = Farm(client)
    job = farm.submit()
    claimed = farm.claim(TALKER)
    writer = farm.writer(claimed)
    writer.append(b"abc")
    client.wait_durable()
    kill(own_valkey)
    own_valkey.start()
    assert farm.state(job) == "running"
    assert writer.append(b"def") == "ok"
    assert farm.audio(writer.log) == b"abcdef"
    assert farm.commit(claimed) == "ok"
    client.close()


def test_a_server_that_comes_back_empty_gets_the_functions_again(own_valkey: EmbeddedValkey) -> None:
    client = Client(own_valkey.url, own_valkey.url, Keys("tts"))
    client.load()
    own_valkey.stop()
    for left in (own_valkey.data_dir / "appendonlydir").iterdir():
        left.unlink()
    own_valkey.start()
    farm = Farm(client)
    farm.submit()
    assert isinstance(farm.ask(TALKER), Claim)
    client.close()


def kill(server: EmbeddedValkey) -> None:
    assert server.process is not None
    server.process.kill()
    server.process.wait()


def test_audio_that_its_server_lost_is_made_again_from_the_codes(
    own_valkey: EmbeddedValkey, valkey: EmbeddedValkey, prefix: str
) -> None:
    client = Client(own_valkey.url, valkey.url, Keys(prefix))
    client.load()
    farm = Farm(client)
    farm.submit()
    talker = farm.claim(TALKER)
    farm.write_all(talker, b"codes")
    codec = farm.claim("toy/codec")
    farm.write_all(codec, b"pcmpcm")
    assert [role for role, _ in client.servers()] == ["control", "chunks"]
    chunks = client.server("chunks")
    chunks.delete(client.keys.log(farm.log(codec)), client.keys.log_meta(farm.log(codec)))
    assert farm.reopen(codec, 3) == "reopened"
    again = farm.claim("toy/codec")
    assert farm.writer(again, again.base).append(b"pcm") == "ok"
    assert chunks.xlen(client.keys.log(farm.log(codec))) == 1
    assert client.server("control").exists(client.keys.log(farm.log(talker))) == 1
    client.close()
