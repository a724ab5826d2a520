"""The registry of voices on a real server, from several clients as several API processes have them."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

import pytest

from speechmill.infra.client import AsyncClient
from speechmill.infra.consents import ConsentRecord, drop_consent, find_consent, list_consents, put_consent
from speechmill.infra.embedded import EmbeddedValkey
from speechmill.infra.keys import Keys, new_id
from speechmill.infra.protocol import expire
from speechmill.infra.voices import (
    GRACE_S,
    Put,
    VoiceRecord,
    check_voice,
    drop_voice,
    find_voice,
    fold,
    hasten,
    list_voices,
    name_fault,
    put_voice,
)

T = TypeVar("T")
Talk = Callable[[AsyncClient], Awaitable[T]]
MOST = 3


def voice(name: str = "Alice", project: str = "a") -> VoiceRecord:
    voice_id = new_id("voice")
    return VoiceRecord(
        id=voice_id,
        name=name,
        project=project,
        consent="yes",
        created_at=1,
        kind="audio",
        mime_type="audio/wav",
        file_size=10,
        ref_text="Words — \u0000 and 語.",
        sample_key=f"voices/{project}/{voice_id}/sample.wav",
        clip_key=f"voices/{project}/{voice_id}/clip.wav",
        clip_sha256="0" * 64,
        sample_rate=16_000,
        seconds=3.0,
    )


def put(record: VoiceRecord, policy: str = "overwrite") -> Talk[Put]:
    return lambda client: client.run(put_voice(record, policy, MOST))


async def expiring(client: AsyncClient) -> dict[str, float]:
    found = await client.server("control").zrange(client.keys.expiry(), 0, -1, withscores=True)
    return {key.decode(): due for key, due in found}


@pytest.fixture
def talk(valkey: EmbeddedValkey, prefix: str) -> Callable[[Talk[T]], T]:
    """Runs a conversation with the server, each time with a client of its own."""

    def run(conversation: Talk[T]) -> T:
        async def main() -> T:
            client = AsyncClient(valkey.url, valkey.url, Keys(prefix))
            await client.load()
            try:
                return await conversation(client)
            finally:
                await client.close()

        return asyncio.run(main())

    return run


def test_a_voice_is_found_by_its_name_in_any_case_and_by_its_id(talk: Callable[[Talk[T]], T]) -> None:
    record = voice("Straße Ü")
    answer = talk(put(record))
    stored = replace(record, version=answer.version)
    for name in ("STRASSE Ü", "straße u\u0308", "  Straße Ü ", record.id):
        assert talk(lambda client, name=name: client.run(find_voice("a", name))) == stored
    assert talk(lambda client: client.run(find_voice("a", "strase"))) is None


def test_an_embedding_comes_back_to_the_bit_of_a_float32(talk: Callable[[Talk[T]], T]) -> None:
    record = replace(voice(), kind="embedding", sample_key="", clip_key="", dim=3, embedding=(0.5, -0.25, 1e-3))
    talk(put(record))
    found = talk(lambda client: client.run(find_voice("a", "alice")))
    assert found.embedding == pytest.approx(record.embedding, rel=1e-7)
    (listed,) = talk(lambda client: list_voices(client, "a"))
    assert (listed.dim, listed.embedding) == (3, None)


def test_a_voice_belongs_to_its_project_alone(talk: Callable[[Talk[T]], T]) -> None:
    record = voice()
    talk(put(record))
    for name in (record.name, record.id):
        assert talk(lambda client, name=name: client.run(find_voice("b", name))) is None
    assert talk(lambda client: client.run(drop_voice("b", record.id))) == "unknown"
    assert [found.id for found in talk(lambda client: list_voices(client, "a"))] == [record.id]


def test_a_second_upload_replaces_the_first_and_lets_its_objects_go_later(talk: Callable[[Talk[T]], T]) -> None:
    first, second = voice("Alice"), voice("ALICE")
    answers = [talk(put(record)) for record in (first, second)]
    assert answers[0].version < answers[1].version
    assert [answer.replaced for answer in answers] == [None, replace(first, version=answers[0].version)]
    assert talk(lambda client: client.run(find_voice("a", first.id))) is None
    assert talk(lambda client: client.run(find_voice("a", "alice"))).id == second.id
    due = talk(expiring)
    assert set(due) == set(first.objects)
    assert min(due.values()) > time.time() + GRACE_S - 60


def test_a_replaced_voice_takes_no_place_of_its_own(talk: Callable[[Talk[T]], T]) -> None:
    for _ in range(MOST + 2):
        assert talk(put(voice())).verdict == "ok"
    assert len(talk(lambda client: list_voices(client, "a"))) == 1


def test_under_the_immutable_policy_the_first_voice_stays(talk: Callable[[Talk[T]], T]) -> None:
    first = voice()
    talk(put(first, "immutable"))
    assert talk(put(voice(), "immutable")) == Put("exists")
    assert talk(lambda client: client.run(check_voice("a", "alice", "immutable", MOST))) == "exists"
    assert talk(lambda client: client.run(find_voice("a", "alice"))).id == first.id
    assert talk(expiring) == {}


def test_a_full_project_takes_no_new_name_but_replaces_one_it_has(talk: Callable[[Talk[T]], T]) -> None:
    for name in "xyz":
        talk(put(voice(name)))
    assert talk(put(voice("more"))) == Put("full")
    assert talk(lambda client: client.run(check_voice("a", "more", "overwrite", MOST))) == "full"
    assert talk(put(voice("y"))).verdict == "ok"
    assert talk(put(voice("more", project="b"))).verdict == "ok"


def test_uploads_at_the_same_time_never_exceed_the_cap(talk: Callable[[Talk[T]], T]) -> None:
    async def all_at_once(client: AsyncClient) -> list[str]:
        calls = [client.run(put_voice(voice(f"v{number}"), "overwrite", MOST)) for number in range(20)]
        return [answer.verdict for answer in await asyncio.gather(*calls)]

    verdicts = talk(all_at_once)
    assert (verdicts.count("ok"), verdicts.count("full")) == (MOST, 20 - MOST)
    assert len(talk(lambda client: list_voices(client, "a"))) == MOST


def test_the_versions_of_all_projects_rise_together(talk: Callable[[Talk[T]], T]) -> None:
    async def all_at_once(client: AsyncClient) -> list[int]:
        calls = [client.run(put_voice(voice("v", f"p{number}"), "overwrite", MOST)) for number in range(10)]
        return [answer.version for answer in await asyncio.gather(*calls)]

    assert sorted(talk(all_at_once)) == list(range(1, 11))


def test_a_put_that_is_sent_twice_is_one_put(talk: Callable[[Talk[T]], T]) -> None:
    record = voice()
    assert talk(put(record, "immutable")) == talk(put(record, "immutable")) == Put("ok", 1)
    assert talk(expiring) == {}


def test_objects_that_a_record_claims_are_taken_off_the_expiry_set(talk: Callable[[Talk[T]], T]) -> None:
    record = voice()
    for key in record.objects:
        talk(lambda client, key=key: client.run(expire(key, 1)))
    talk(put(record))
    assert talk(expiring) == {}


def test_a_dropped_voice_is_gone_and_its_objects_follow(talk: Callable[[Talk[T]], T]) -> None:
    record = voice()
    talk(put(record))
    assert talk(lambda client: client.run(drop_voice("a", record.id))) == "ok"
    assert talk(lambda client: client.run(drop_voice("a", record.id))) == "unknown"
    assert talk(lambda client: client.run(find_voice("a", "alice"))) is None
    assert set(talk(expiring)) == set(record.objects)


def test_what_was_derived_from_a_voice_goes_sooner_but_is_not_put_off(talk: Callable[[Talk[T]], T]) -> None:
    later = time.time() + 10 * GRACE_S
    for key, due in (("late", later), ("soon", 5.0)):
        talk(lambda client, key=key, due=due: client.run(expire(key, due)))
    talk(lambda client: client.run(hasten(["late", "soon", "not there"])))
    due = talk(expiring)
    assert set(due) == {"late", "soon"}
    assert due["soon"] == 5
    assert due["late"] < later


def test_dropping_a_voice_that_was_replaced_meanwhile_spares_the_new_one(talk: Callable[[Talk[T]], T]) -> None:
    first, second = voice(), voice()
    talk(put(first))
    talk(put(second))
    assert talk(lambda client: client.run(drop_voice("a", first.id))) == "unknown"
    assert talk(lambda client: client.run(find_voice("a", "alice"))).id == second.id


def test_voices_are_listed_by_name_whatever_the_order_of_upload(talk: Callable[[Talk[T]], T]) -> None:
    for name in ("beta", "Alpha", "語"):
        talk(put(voice(name)))
    assert [record.name for record in talk(lambda client: list_voices(client, "a"))] == ["Alpha", "beta", "語"]


@pytest.mark.parametrize("name", ["a", "a b", "語", "x" * 128, "...", "-"])
def test_a_name_may_be_anything_that_is_no_path(name: str) -> None:
    assert name_fault(name) is None


@pytest.mark.parametrize("name", ["", "x" * 129, ".", "..", "a/b", "a\\b", "a\x00", "a\nb", "a\x7f", "\x85a"])
def test_a_name_that_is_a_path_or_holds_control_characters_is_at_fault(name: str) -> None:
    assert name_fault(name) is not None


def test_names_that_differ_in_case_or_encoding_only_are_the_same() -> None:
    assert fold("É ") == fold("e\u0301") == "é"


def consent(project: str = "a") -> ConsentRecord:
    consent_id = new_id("cons")
    return ConsentRecord(
        id=consent_id,
        name="Ann",
        project=project,
        language="en-GB",
        created_at=1,
        mime_type="audio/wav",
        file_size=5,
        recording_key=f"consents/{project}/{consent_id}.wav",
    )


def test_consents_are_kept_renamed_and_dropped_with_their_recording(talk: Callable[[Talk[T]], T]) -> None:
    first, second = consent(), consent()
    talk(lambda client: client.run(expire(first.recording_key, 1)))
    for record in (first, second):
        assert talk(lambda client, record=record: client.run(put_consent(record))) == "ok"
    assert talk(expiring) == {}
    newest_first = sorted((first, second), key=lambda record: record.id, reverse=True)
    assert talk(lambda client: list_consents(client, "a")) == newest_first
    renamed = replace(first, name="Anne")
    assert talk(lambda client: client.run(put_consent(renamed, only_if_there=True))) == "ok"
    assert talk(lambda client: find_consent(client, "a", first.id)) == renamed
    assert talk(lambda client: client.run(drop_consent("a", first.id))) == "ok"
    assert talk(lambda client: find_consent(client, "a", first.id)) is None
    assert set(talk(expiring)) == {first.recording_key}


def test_a_rename_does_not_bring_back_a_consent_that_was_withdrawn(talk: Callable[[Talk[T]], T]) -> None:
    record = consent()
    assert talk(lambda client: client.run(put_consent(record, only_if_there=True))) == "unknown"
    assert talk(lambda client: list_consents(client, "a")) == []
    assert talk(lambda client: client.run(drop_consent("a", record.id))) == "unknown"
