"""Voices and consents over HTTP, on the real servers, with every model's card and no worker."""

import asyncio
import io
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

from speechmill.api import farm as farm_module
from speechmill.api.app import create_app
from speechmill.api.callers import Caller
from speechmill.api.errors import ApiError
from speechmill.api.voices import upload as voice_upload
from speechmill.api.voices.form import parse_embedding
from speechmill.api.voices.resolve import ResolvedVoice, resolve_voice
from speechmill.configs.settings import ApiKey, Settings, load
from speechmill.infra.client import Client
from speechmill.infra.embedded import EmbeddedS3, EmbeddedValkey
from speechmill.infra.errors import StoreUnavailable
from speechmill.infra.expiry import sweep_objects
from speechmill.infra.keys import Keys, features_key
from speechmill.infra.objects import ObjectStore
from speechmill.infra.precomputed import MANIFEST
from speechmill.infra.voices import GRACE_S, VoiceRecord

CUSTOM = "Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice"
BASE = "Qwen/Qwen3-TTS-12Hz-1.7B-Base"
SMALL_BASE = "Qwen/Qwen3-TTS-12Hz-0.6B-Base"
FISH = "fishaudio/s2-pro"
KEYS = {"a": "sk-a", "b": "sk-b", "reader": "sk-reader", "speaker": "sk-speaker"}
PATH = "/v1/audio/voices"
CONSENTS = "/v1/audio/voice_consents"
Part = tuple[str, tuple[str | None, bytes | str, str] | tuple[None, str]]


def wav(seconds: float = 1.5, rate: int = 8000, channels: int = 1, container: str = "WAV") -> bytes:
    tone = 0.3 * np.sin(2 * np.pi * 220 * np.arange(int(seconds * rate)) / rate)
    file = io.BytesIO()
    soundfile.write(file, np.repeat(tone[:, None], channels, 1), rate, format=container)
    return file.getvalue()


WAV = wav()


def form(**fields: Any) -> list[Part]:
    """A good form for a voice, changed by `fields` as `parts` takes them."""
    return parts({"name": "Alice", "consent": "yes", "audio_sample": WAV} | fields)


def parts(fields: dict[str, Any]) -> list[Part]:
    """Of a form: a text, bytes of a WAV, a whole file part, or None to leave the field out."""
    parts: list[Part] = []
    for name, value in fields.items():
        if isinstance(value, bytes):
            parts.append((name, ("a.wav", value, "audio/wav")))
        elif value is not None:
            parts.append((name, value if isinstance(value, tuple) else (None, value)))
    return parts


class Server:
    """One API process."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.app = create_app(settings)
        self.farm = self.app.state.farm
        self.objects = self.farm.objects
        self.client = Client(settings.redis.control_url, settings.redis.control_url, Keys(settings.redis.prefix))

    def run(self, talk: Callable[[], Awaitable[None]]) -> None:
        async def main() -> None:
            await self.farm.start()
            try:
                await talk()
            finally:
                await self.farm.stop()

        asyncio.run(main())

    async def ask(self, method: str, path: str, key: str | None = "a", **options: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {KEYS[key]}"} if key else {}
        transport = httpx.ASGITransport(self.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test", headers=headers) as client:
            return await client.request(method, path, **options)

    async def upload(self, key: str = "a", **fields: Any) -> httpx.Response:
        return await self.ask("POST", PATH, key, files=form(**fields))

    async def agree(self, **fields: Any) -> httpx.Response:
        """Upload a good consent, changed by `fields`."""
        return await self.ask(
            "POST", CONSENTS, files=parts({"name": "Ann", "language": "en-GB", "recording": WAV} | fields)
        )

    async def listed(self, key: str | None = "a", **query: Any) -> dict[str, Any]:
        answer = await self.ask("GET", PATH, key, params=query)
        assert answer.status_code == 200
        body: dict[str, Any] = answer.json()
        return body


def stands_for(answer: httpx.Response) -> tuple[int, str, str | None]:
    error = answer.json()["error"]
    return answer.status_code, error["code"], error["param"]


@pytest.fixture(scope="module")
def objects(s3: EmbeddedS3) -> ObjectStore:
    """Of all tests here: a client takes long to make."""
    return ObjectStore(s3.bucket, s3.endpoint_url, s3.access_key, s3.secret_key)


@pytest.fixture
def settings(
    valkey: EmbeddedValkey, objects: ObjectStore, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> Settings:
    monkeypatch.setattr(farm_module, "make_objects", lambda settings: objects)
    settings = load().model_copy(deep=True)
    settings.redis.control_url, settings.redis.prefix = valkey.url, prefix
    settings.models, settings.test.stand_in = (CUSTOM, BASE, SMALL_BASE, FISH, "hibari"), True
    settings.auth.enabled = True
    settings.auth.keys = (
        ApiKey(key=KEYS["a"], project="a"),
        ApiKey(key=KEYS["b"], project="b"),
        ApiKey(key=KEYS["reader"], project="a", scopes=("voices:read",)),
        ApiKey(key=KEYS["speaker"], project="a", scopes=("speech",)),
    )
    return settings


@pytest.fixture
def server(settings: Settings) -> Iterator[Server]:
    server = Server(settings)
    server.client.load()
    yield server
    server.client.close()


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
TEXT_FILE = ("a.txt", WAV, "text/plain")
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


async def resolve(server: Server, model: str, name: str, project: str = "a") -> ResolvedVoice | None:
    card = next(card for card in server.farm.models if card.id == model)
    caller = Caller(project, "key", frozenset({"speech"}))
    return await resolve_voice(server.farm, caller, card, name)


async def resolved(server: Server, model: str, name: str) -> ResolvedVoice:
    found = await resolve(server, model, name)
    assert found is not None
    return found


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


def test_the_list_holds_the_voices_of_all_models_in_a_stable_order(server: Server) -> None:
    async def talk() -> None:
        await server.upload(name="Ron")
        listed = await server.listed()
        assert listed["object"] == "list"
        assert listed["has_more"] is False
        assert {"vivian", "ryan", "heart", "default", "ron"} <= set(listed["voices"])
        assert listed["voices"] == sorted(set(listed["voices"]))
        names = [entry["name"].casefold() for entry in listed["data"]]
        assert names == sorted(names)
        (vivian,) = [entry for entry in listed["data"] if entry["name"] == "vivian"]
        assert vivian["created_at"] > 0
        assert vivian == {
            "created_at": vivian["created_at"],
            "id": "vivian",
            "object": "audio.voice",
            "name": "vivian",
            "type": "builtin",
            "source": "builtin",
            "models": [CUSTOM],
            "languages": ["Chinese"],
        }
        assert await server.listed() == listed

    server.run(talk)


def test_the_list_of_a_model_holds_what_it_can_speak_with(server: Server) -> None:
    server.settings.aliases = type(server.settings).model_validate(
        {"aliases": {"tts-1": {"model": "hibari"}}}
    ).aliases

    async def talk() -> None:
        await server.upload()
        assert (await server.listed(model="tts-1"))["voices"] == ["default", "heart"]
        assert (await server.listed(model=BASE))["voices"] == ["alice"]
        unknown = await server.ask("GET", PATH, params={"model": "gone"})
        assert stands_for(unknown) == (404, "model_not_found", "model")

    server.run(talk)


def test_the_list_comes_in_pages(server: Server) -> None:
    async def talk() -> None:
        await server.upload()
        whole, seen, after = (await server.listed())["data"], [], {}
        while True:
            page = await server.listed(limit=3, **after)
            assert len(page["data"]) <= 3
            assert {voice["name"] for voice in page["uploaded_voices"]} == {
                voice["name"] for voice in page["data"] if voice["source"] == "uploaded"
            }
            seen += page["data"]
            if not page["has_more"]:
                break
            after = {"after": page["data"][-1]["id"]}
        assert seen == whole
        for query, param in (({"after": "gone"}, "after"), ({"limit": 0}, "limit"), ({"limit": 1001}, "limit")):
            answer = await server.ask("GET", PATH, params=query)
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
        assert stands_for(await server.ask("GET", PATH, params={"after": "gone"}))[1] == "invalid_cursor"

    server.run(talk)


def test_voices_are_objects_where_they_are_asked_for_or_the_profile_says_so(server: Server) -> None:
    async def talk() -> None:
        objects = [{"id": "default", "name": "default"}, {"id": "heart", "name": "heart"}]
        assert (await server.listed(model="hibari", format="objects"))["voices"] == objects
        in_profile = await server.ask("GET", f"/compat/openwebui{PATH}", key=None, params={"model": "hibari"})
        assert in_profile.json()["voices"] == objects
        strings = {"model": "hibari", "format": "strings"}
        as_strings = await server.ask("GET", f"/compat/openwebui{PATH}", params=strings)
        assert as_strings.json()["voices"] == ["default", "heart"]
        assert stands_for(await server.ask("GET", PATH, params={"format": "xml"}))[::2] == (400, "format")

    server.run(talk)


def test_projects_see_and_touch_their_own_voices_only(server: Server) -> None:
    async def talk() -> None:
        voice_id = (await server.upload()).json()["id"]
        assert (await server.listed("b"))["uploaded_voices"] == []
        for method, path in (("GET", ""), ("GET", "/sample"), ("DELETE", "")):
            for name in ("alice", voice_id):
                answer = await server.ask(method, f"{PATH}/{name}{path}", "b")
                assert stands_for(answer)[:2] == (404, "voice_not_found")
        assert (await server.listed("reader"))["uploaded_voices"] != []

    server.run(talk)


def test_voices_are_read_and_written_with_the_scopes_for_it(server: Server) -> None:
    async def talk() -> None:
        assert stands_for(await server.upload("reader"))[:2] == (403, "permission_denied")
        assert stands_for(await server.ask("DELETE", f"{PATH}/x", "reader"))[:2] == (403, "permission_denied")
        assert stands_for(await server.ask("GET", PATH, "speaker"))[:2] == (403, "permission_denied")
        assert stands_for(await server.ask("GET", f"{PATH}/vivian", None))[:2] == (401, "missing_api_key")

    server.run(talk)


def test_without_a_key_the_list_holds_nobodys_uploads(server: Server) -> None:
    server.settings.auth.keys = (*server.settings.auth.keys, ApiKey(key="sk-d", project="default"))

    async def talk() -> None:
        made = await server.ask("POST", PATH, None, files=form(), headers={"Authorization": "Bearer sk-d"})
        assert made.status_code == 200
        listed = await server.listed(None)
        assert listed["uploaded_voices"] == []
        assert "alice" not in listed["voices"]
        assert "vivian" in listed["voices"]
        server.settings.auth.public_lists = False
        assert stands_for(await server.ask("GET", PATH, None))[:2] == (401, "missing_api_key")

    server.run(talk)


def test_voices_of_other_services_are_reserved_only_where_they_mean_something(server: Server) -> None:
    server.settings.voices.aliases = {"alloy": "heart"}

    async def talk() -> None:
        assert stands_for(await server.upload(name="Alloy"))[:2] == (409, "voice_name_reserved")
        assert (await server.upload(name="Nova")).status_code == 200

    server.run(talk)


def test_precomputed_voices_are_listed_resolved_and_kept_from_uploads(settings: Settings, tmp_path: Path) -> None:
    payload = save({"speaker_embedding": np.ones(1024, np.float32)})
    (tmp_path / "pre.safetensors").write_bytes(payload)
    voices = {"Prepared": {"file": "pre.safetensors", "mode": "xvec"}, "broken": {"file": "none"}}
    (tmp_path / MANIFEST).write_text(json.dumps({"schema_version": 1, "model_type": "qwen3_tts", "voices": voices}))
    settings.voices.precomputed = (str(tmp_path),)
    server = Server(settings)

    async def talk() -> None:
        listed = await server.listed()
        assert "prepared" in listed["voices"]
        assert "broken" not in listed["voices"]
        (entry,) = [entry for entry in listed["data"] if entry["source"] == "precomputed"]
        assert (entry["name"], entry["models"]) == ("Prepared", [SMALL_BASE])
        assert stands_for(await server.upload(name="prepared"))[:2] == (409, "voice_name_reserved")
        assert stands_for(await server.ask("DELETE", f"{PATH}/prepared"))[:2] == (403, "voice_is_builtin")
        for model, usable in ((SMALL_BASE, True), (BASE, False), (FISH, False)):
            found = await resolved(server, model, "PREPARED")
            assert (found.kind, found.usable) == ("precomputed", usable)

    server.run(talk)
    server.client.close()


def test_a_recorded_consent_is_made_listed_renamed_and_withdrawn(server: Server) -> None:
    async def talk() -> None:
        made = [(await server.agree(name=name)).json() for name in ("Ann", "Ben", "Cal")]
        ann = made[0]
        assert ann == {
            "id": ann["id"],
            "object": "audio.voice_consent",
            "created_at": ann["created_at"],
            "name": "Ann",
            "language": "en-GB",
        }
        assert ann["id"].startswith("cons_")
        newest_first = sorted(made, key=lambda consent: consent["id"], reverse=True)
        page = (await server.ask("GET", CONSENTS, params={"limit": 2})).json()
        assert page == {"object": "list", "data": newest_first[:2], "has_more": True}
        rest = (await server.ask("GET", CONSENTS, params={"after": page["data"][-1]["id"]})).json()
        assert rest == {"object": "list", "data": newest_first[2:], "has_more": False}
        path = f"{CONSENTS}/{ann['id']}"
        renamed = await server.ask("POST", path, json={"name": " Anne "})
        assert renamed.json() == {**ann, "name": "Anne"}
        assert (await server.ask("GET", path)).json() == renamed.json()
        gone = await server.ask("DELETE", path)
        assert gone.json() == {"id": ann["id"], "object": "audio.voice_consent", "deleted": True}
        for method, body in (("GET", None), ("POST", {"name": "x"}), ("DELETE", None)):
            assert stands_for(await server.ask(method, path, json=body)) == (404, "not_found", None)
        assert sweep_objects(server.client, server.objects) == 1
        assert list(server.objects.list_prefix(f"consents/a/{ann['id']}")) == []

    server.run(talk)


def test_what_is_wrong_with_a_consent_is_told_by_its_field(server: Server) -> None:
    wrong = (
        ({"name": None}, (400, "missing_required_parameter", "name")),
        ({"language": None}, (400, "missing_required_parameter", "language")),
        ({"language": "English please"}, (400, "invalid_value", "language")),
        ({"recording": None}, (400, "missing_required_parameter", "recording")),
        ({"recording": TEXT_FILE}, (400, "invalid_value", "recording")),
        ({"recording": b"words"}, (400, "ref_audio_invalid", "recording")),
    )

    async def talk() -> None:
        for change, error in wrong:
            assert stands_for(await server.agree(**change)) == error
        made = (await server.agree()).json()
        path = f"{CONSENTS}/{made['id']}"
        names = (({}, "missing_required_parameter"), ({"name": 5}, "invalid_type"), ({"name": " "}, "invalid_value"))
        for body, code in names:
            assert stands_for(await server.ask("POST", path, json=body)) == (400, code, "name")
        for method, key, error in (("GET", "b", 404), ("DELETE", "b", 404), ("DELETE", "reader", 403)):
            assert (await server.ask(method, path, key)).status_code == error

    server.run(talk)


def test_where_consents_are_recorded_only_a_recording_of_the_project_counts(server: Server) -> None:
    server.settings.voices.consent_mode = "recorded"

    async def talk() -> None:
        consent_id = (await server.agree()).json()["id"]
        for other in ("yes", "cons_01ARZ3NDEKTSV4RRFFQ69G5FAV"):
            assert stands_for(await server.upload(consent=other)) == (400, "consent_required", "consent")
        assert stands_for(await server.upload("b", consent=consent_id)) == (400, "consent_required", "consent")
        assert (await server.upload(consent=consent_id)).json()["voice"]["consent"] == consent_id

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
