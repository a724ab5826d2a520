"""Consents: recorded, changed, withdrawn, and asked for."""

from speechmill.infra.expiry import sweep_objects

from .server import CONSENTS, TEXT_FILE, Server, stands_for


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
