"""How a voice comes, is heard, is replaced and goes."""

import io
import json
import time
from typing import Any
from urllib.parse import quote

import httpx
import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from speechmill.api.errors import ApiError
from speechmill.api.voices import upload as voice_upload
from speechmill.api.voices.form import parse_embedding
from speechmill.api.voices.resolve import ResolvedVoice
from speechmill.infra.errors import StoreUnavailable
from speechmill.infra.expiry import sweep_objects
from speechmill.infra.keys import features_key
from speechmill.infra.voices import GRACE_S, VoiceRecord

from .server import (
    BASE,
    CONSENTS,
    CUSTOM,
    FISH,
    PATH,
    SMALL_BASE,
    TEXT_FILE,
    WAV,
    Server,
    resolve,
    resolved,
    stands_for,
    wav,
)


def test_an_uploaded_voice_is_told_listed_shown_heard_and_deleted(server: Server) -> None:
    async def talk() -> None:
        made = (await server.upload(ref_text=" The words. ", speaker_description="warm", model="qwen3_tts")).json()
        voice = {
            "name": "Alice",
            "consent": "yes",
            "created_at": made["created_at"],
            "mime_type": "audio/wav",
            "file_size": len(WAV),
            "ref_text": "The words.",
            "speaker_description": "warm",
        }
        assert made == {
            "success": True,
            "voice": voice,
            "id": made["id"],
            "object": "audio.voice",
            "type": "audio_sample",
            "created_at": made["created_at"],
            "name": "Alice",
        }
        listed = await server.listed()
        assert "alice" in listed["voices"]
        assert listed["uploaded_voices"] == [{**voice, "embedding_source": "audio", "embedding_dim": None}]
        shown = (await server.ask("GET", f"{PATH}/aLICE")).json()
        assert shown in listed["data"]
        assert (shown["id"], shown["source"], shown["models"]) == (made["id"], "uploaded", [BASE, SMALL_BASE])
        assert "English" in shown["languages"]
        for name in ("alice", made["id"]):
            heard = await server.ask("GET", f"{PATH}/{name}/sample")
            assert (heard.content, heard.headers["content-type"]) == (WAV, "audio/wav")
            assert heard.headers["content-disposition"] == f'attachment; filename="{made["id"]}.wav"'
        gone = await server.ask("DELETE", f"{PATH}/ALICE")
        assert gone.json() == {
            "success": True,
            "message": "Voice 'Alice' deleted successfully",
            "id": made["id"],
            "object": "audio.voice.deleted",
            "deleted": True,
        }
        again = await server.ask("DELETE", f"{PATH}/ALICE")
        assert stands_for(again)[:2] == (404, "voice_not_found")
        assert again.json()["success"] is False
        assert "success" not in again.json()["error"]
        for path in ("Alice", f"{made['id']}", f"{made['id']}/sample"):
            assert stands_for(await server.ask("GET", f"{PATH}/{path}"))[:2] == (404, "voice_not_found")

    server.run(talk)


def test_an_embedding_makes_a_voice_for_models_of_its_size(server: Server) -> None:
    async def talk() -> None:
        numbers = json.dumps([0.5] * 1024)
        made = (await server.upload(audio_sample=None, speaker_embedding=numbers)).json()
        assert made["type"] == "speaker_embedding"
        assert (made["voice"]["embedding_source"], made["voice"]["embedding_dim"]) == ("direct", 1024)
        listed = await server.listed(model=SMALL_BASE)
        assert [voice["name"] for voice in listed["uploaded_voices"]] == ["Alice"]
        assert listed["uploaded_voices"][0]["embedding_dim"] == 1024
        assert (await server.listed(model=BASE))["uploaded_voices"] == []
        assert stands_for(await server.ask("GET", f"{PATH}/alice/sample"))[:2] == (404, "voice_not_found")

    server.run(talk)


LONG = "x" * 2001
WRONG = {
    "no name": ({"name": None}, (400, "missing_required_parameter", "name")),
    "blank name": ({"name": "  "}, (400, "missing_required_parameter", "name")),
    "long name": ({"name": "x" * 129}, (400, "invalid_value", "name")),
    "path": ({"name": "a/b"}, (400, "invalid_value", "name")),
    "parent": ({"name": ".."}, (400, "invalid_value", "name")),
    "control": ({"name": "a\tb"}, (400, "invalid_value", "name")),
    "default": ({"name": " DEFAULT "}, (409, "voice_name_reserved", "name")),
    "of a served model": ({"name": "Vivian"}, (409, "voice_name_reserved", "name")),
    "no consent": ({"consent": None}, (400, "missing_required_parameter", "consent")),
    "long consent": ({"consent": "x" * 257}, (400, "invalid_value", "consent")),
    "long words": ({"ref_text": LONG}, (400, "invalid_value", "ref_text")),
    "long description": ({"speaker_description": LONG}, (400, "invalid_value", "speaker_description")),
    "no source": ({"audio_sample": None}, (400, "missing_required_parameter", "audio_sample")),
    "two sources": ({"speaker_embedding": "[1]"}, (400, "mutually_exclusive_parameters", "speaker_embedding")),
    "text as sample": ({"audio_sample": "words"}, (400, "invalid_type", "audio_sample")),
    "other type": ({"audio_sample": TEXT_FILE}, (400, "invalid_value", "audio_sample")),
    "no audio": ({"audio_sample": b"words, and nothing to be heard"}, (400, "ref_audio_invalid", "audio_sample")),
    "broken audio": ({"audio_sample": b"fLaC" + bytes(99)}, (400, "ref_audio_invalid", "audio_sample")),
    "too short": ({"audio_sample": wav(0.5)}, (400, "ref_audio_too_short", "audio_sample")),
    "too long": ({"audio_sample": wav(31)}, (400, "ref_audio_too_long", "audio_sample")),
    "prompt": ({"type": "prompt"}, (400, "unsupported_parameter", "type")),
    "unknown model": ({"model": "gone"}, (404, "model_not_found", "model")),
}
EMBEDDINGS = {
    "no JSON": ("[1", (400, "invalid_type", "speaker_embedding")),
    "no list": ('{"a":1}', (400, "invalid_type", "speaker_embedding")),
    "truth": ("[true]", (400, "invalid_type", "speaker_embedding")),
    "text": ('["1"]', (400, "invalid_type", "speaker_embedding")),
    "empty": ("[]", (400, "invalid_value", "speaker_embedding")),
    "too many": (json.dumps([0] * 4097), (400, "invalid_value", "speaker_embedding")),
    "infinite": ("[Infinity]", (400, "invalid_value", "speaker_embedding")),
    "beyond float32": ("[1e39]", (400, "invalid_value", "speaker_embedding")),
    "other size": ("[1, 2]", (400, "speaker_embedding_dimension", "speaker_embedding")),
}


def test_what_is_wrong_with_a_form_is_told_by_its_field_and_nothing_is_kept(server: Server) -> None:
    async def talk() -> None:
        before = await server.listed()
        for why, (fields, error) in WRONG.items():
            assert stands_for(await server.upload(**fields)) == error, why
        for why, (numbers, error) in EMBEDDINGS.items():
            assert stands_for(await server.upload(audio_sample=None, speaker_embedding=numbers)) == error, why
        other_family = {"audio_sample": None, "speaker_embedding": json.dumps([0] * 1024), "model": "fish_speech"}
        assert stands_for(await server.upload(**other_family))[1] == "speaker_embedding_dimension"
        assert await server.listed() == before

    server.run(talk)
    assert server.client.server("control").zcard(server.client.keys.expiry()) == 0


def test_a_sample_beyond_the_limit_is_refused_with_413(server: Server) -> None:
    async def talk() -> None:
        sample = WAV + bytes(server.settings.limits.ref_audio_bytes)
        assert stands_for(await server.upload(audio_sample=sample))[:2] == (413, "file_too_large")

    server.run(talk)


def test_what_a_sample_is_stands_in_its_bytes_and_not_in_its_declared_type(server: Server) -> None:
    async def talk() -> None:
        flac = wav(container="FLAC")
        for declared in ("audio/mpeg", "application/octet-stream", "audio/x-wav; rate=8000"):
            made = await server.upload(audio_sample=("noise.bin", flac, declared))
            assert made.json()["voice"]["mime_type"] == "audio/flac"
        assert (await server.ask("GET", f"{PATH}/alice/sample")).headers["content-type"] == "audio/flac"

    server.run(talk)


def test_a_stored_clip_is_mono_float32_at_the_rate_of_the_sample(server: Server) -> None:
    async def talk() -> None:
        await server.upload(audio_sample=wav(2, 16_000, channels=2))
        record = await record_of(server, "alice")
        body = b"".join(server.objects.get(record.clip_key))
        with soundfile.SoundFile(io.BytesIO(body)) as clip:
            assert (clip.subtype, clip.channels, clip.samplerate, clip.frames) == ("FLOAT", 1, 16_000, 32_000)
        assert (record.sample_rate, record.seconds, len(record.clip_sha256)) == (16_000, 2.0, 64)

    server.run(talk)


async def record_of(server: Server, name: str) -> VoiceRecord:
    record = (await resolved(server, BASE, name)).record
    assert isinstance(record, VoiceRecord)
    return record


def test_a_name_means_the_models_own_voice_first_and_then_the_projects(server: Server) -> None:
    async def talk() -> None:
        voice_id = (await server.upload()).json()["id"]
        own = await resolve(server, CUSTOM, "VIVIAN")
        assert own == ResolvedVoice("vivian", "builtin", True, None)
        for name in ("alice", " ALICE ", voice_id):
            found = await resolved(server, BASE, name)
            assert (found.name, found.kind, found.usable) == ("Alice", "uploaded", True)
            assert (await record_of(server, name)).id == voice_id
        assert not (await resolved(server, CUSTOM, "alice")).usable
        assert await resolve(server, BASE, "alice", project="b") is None
        assert await resolve(server, BASE, "vivian") is None
        assert await resolve(server, BASE, "default") is None

    server.run(talk)


def test_a_voice_restricted_to_a_family_is_of_no_use_to_another(server: Server) -> None:
    async def talk() -> None:
        await server.upload(model=BASE)
        for model, usable in ((BASE, True), (SMALL_BASE, True), (FISH, False)):
            assert (await resolved(server, model, "alice")).usable is usable

    server.run(talk)


def test_a_new_upload_replaces_a_voice_and_a_bad_one_leaves_it(server: Server) -> None:
    async def talk() -> None:
        first = (await server.upload(consent="one")).json()
        for bad in ({"audio_sample": wav(0.5)}, {"audio_sample": None, "speaker_embedding": "[1]"}):
            assert (await server.upload(**bad)).status_code == 400
            assert (await server.ask("GET", f"{PATH}/alice")).json()["id"] == first["id"]
        second = (await server.upload(name="ALICE", consent="two")).json()
        assert second["id"] != first["id"]
        assert [voice["consent"] for voice in (await server.listed())["uploaded_voices"]] == ["two"]
        old_and_new = [await resolve(server, BASE, voice["id"]) for voice in (first, second)]
        assert [found is not None for found in old_and_new] == [False, True]

    server.run(talk)


def test_a_store_that_fails_between_two_objects_leaves_the_old_voice(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def talk() -> None:
        first = (await server.upload()).json()
        put_once = server.farm.objects.put_once

        def fail_for_clips(key: str, *arguments: Any) -> Any:
            if key.endswith("/clip.wav"):
                raise StoreUnavailable("away")
            return put_once(key, *arguments)

        monkeypatch.setattr(server.farm.objects, "put_once", fail_for_clips)
        assert (await server.upload()).status_code == 503
        assert (await server.ask("GET", f"{PATH}/alice/sample")).content == WAV
        assert (await server.ask("GET", f"{PATH}/alice")).json()["id"] == first["id"]
        left = server.client.server("control").zrange(server.client.keys.expiry(), 0, -1)
        assert len(left) == 2
        assert all(first["id"] not in key.decode() for key in left)

    server.run(talk)


def test_objects_of_a_deleted_voice_stay_for_running_jobs_and_then_go(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def talk() -> None:
        await server.upload()
        record = await record_of(server, "alice")
        await server.ask("DELETE", f"{PATH}/alice")
        assert sweep_objects(server.client, server.objects) == 0
        assert b"".join(server.objects.get(record.sample_key)) == WAV
        control, expiry = server.client.server("control"), server.client.keys.expiry()
        for key in record.objects:
            assert control.zscore(expiry, key) > 0
            control.zadd(expiry, {key: 1})
        assert sweep_objects(server.client, server.objects) == 2
        assert list(server.objects.list_prefix(f"voices/a/{record.id}/")) == []

    server.run(talk)


def test_features_of_a_voice_that_was_replaced_or_deleted_go_with_it(server: Server) -> None:
    control, expiry = server.client.server("control"), server.client.keys.expiry()
    late = time.time() + 10 * GRACE_S

    async def talk() -> None:
        keys = []
        for sample in (WAV, wav(2)):
            await server.upload(audio_sample=sample)
            sha256 = (await record_of(server, "alice")).clip_sha256
            keys.append(features_key(BASE, "icl", 1, sha256))
            control.zadd(expiry, {keys[-1]: late})
        assert [control.zscore(expiry, key) < late for key in keys] == [True, False]
        await server.ask("DELETE", f"{PATH}/alice")
        assert [control.zscore(expiry, key) < late for key in keys] == [True, True]

    server.run(talk)


def test_what_is_full_or_immutable_says_so(server: Server) -> None:
    server.settings.voices.max = 1
    server.settings.voices.policy = "immutable"

    async def talk() -> None:
        assert (await server.upload()).status_code == 200
        assert stands_for(await server.upload(name="aLice")) == (409, "voice_exists", "name")
        full = await server.upload(name="Bob")
        assert stands_for(full) == (400, "invalid_value", "name")
        assert "limit reached" in full.json()["error"]["message"]
        assert (await server.upload("b", name="Bob")).status_code == 200

    server.run(talk)


def test_room_that_is_taken_while_the_objects_are_written_is_seen_at_the_swap(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.settings.voices.max = 1
    store = voice_upload.store_unclaimed
    rivals: list[httpx.Response] = []

    async def lose_the_race(*arguments: Any) -> None:
        monkeypatch.setattr(voice_upload, "store_unclaimed", store)
        rivals.append(await server.upload(name="Rival"))
        await store(*arguments)

    async def talk() -> None:
        monkeypatch.setattr(voice_upload, "store_unclaimed", lose_the_race)
        assert stands_for(await server.upload()) == (400, "invalid_value", "name")
        assert rivals[0].status_code == 200
        assert [voice["name"] for voice in (await server.listed())["uploaded_voices"]] == ["Rival"]

    server.run(talk)


def test_a_voice_of_any_name_is_deleted_by_its_path(server: Server) -> None:
    async def talk() -> None:
        for name in ("Case Voice One", "声 音", "a%b", "50% +more?&#"):
            assert (await server.upload(name=name)).status_code == 200
            gone = await server.ask("DELETE", f"{PATH}/{quote(name, safe='')}")
            assert gone.json()["message"] == f"Voice '{name}' deleted successfully"

    server.run(talk)


def test_a_slash_in_a_path_names_no_voice(server: Server) -> None:
    async def talk() -> None:
        for method in ("GET", "DELETE"):
            for path in (f"{PATH}/a%2Fb", f"{PATH}/a/b"):
                assert stands_for(await server.ask(method, path))[:2] == (404, "voice_not_found")

    server.run(talk)


def test_a_voice_of_the_server_cannot_be_deleted(server: Server) -> None:
    async def talk() -> None:
        for name in ("vivian", "HEART", "default"):
            answer = await server.ask("DELETE", f"{PATH}/{name}")
            assert stands_for(answer)[:2] == (403, "voice_is_builtin")
            assert answer.json()["error"]["type"] == "permission_error"

    server.run(talk)


def test_other_bodies_than_forms_are_refused(server: Server) -> None:
    async def talk() -> None:
        for path in (PATH, CONSENTS):
            assert stands_for(await server.ask("POST", path, json={"name": "x"}))[:2] == (415, "unsupported_media_type")

    server.run(talk)


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)


@given(st.text(max_size=40) | st.recursive(SCALARS, st.lists).map(json.dumps))
def test_any_text_is_an_embedding_of_finite_numbers_or_refused(text: str) -> None:
    try:
        numbers = parse_embedding(text)
    except ApiError:
        return
    assert np.isfinite(np.array(numbers, np.float32)).all()
    assert list(numbers) == json.loads(text)
