"""Which voices there are for whom."""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from speechmill.configs.settings import ApiKey, Settings
from speechmill.infra.precomputed import MANIFEST

from .server import BASE, CUSTOM, FISH, PATH, SMALL_BASE, Server, form, resolved, stands_for


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
    server.settings.aliases = type(server.settings).model_validate({"aliases": {"tts-1": {"model": "hibari"}}}).aliases

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
