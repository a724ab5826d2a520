"""The web page and the docs, used as people do: in a browser, against a whole farm."""

from pathlib import Path

import httpx
from playwright.sync_api import Browser, Dialog, Page, Request, Route, expect

from speechmill.infra.jobs import TERMINAL

from ..harness import Farm, eventually
from .browser import SECOND_MODEL, await_played, number

HELLO = "Hello."
SENTENCE = "The birch canoe slid on the smooth planks."
UNFOLD = "all => all.forEach((each) => { each.open = true; })"


def spoken(farm: Farm, **body: object) -> bytes:
    """What the API answers."""
    answer = httpx.post(f"{farm.base}/v1/audio/speech", json={"model": "hibari", "input": HELLO, **body}, timeout=60)
    assert answer.status_code == 200
    return answer.content


def test_a_text_is_played_to_its_last_sample_without_a_gap(page: Page, served: Farm) -> None:
    page.fill("#text", SENTENCE)
    page.click("text=More")
    page.fill("#seed", "7")
    page.click("#speak")
    await_played(page)
    frames = len(spoken(served, input=SENTENCE, seed=7, response_format="pcm")) // 2
    assert (number(page, "received"), number(page, "played"), number(page, "gaps")) == (frames, frames, 0)
    assert page.locator("#first").inner_text().endswith(" ms")


def test_stopping_cancels_the_job(page: Page, served: Farm) -> None:
    page.fill("#text", f"{SENTENCE} " * 200)
    with page.expect_response("**/v1/audio/speech") as answered:
        page.click("#speak")
    job = answered.value.headers["x-job-id"]
    page.wait_for_function("() => document.getElementById('played').value > 0")
    page.keyboard.press("Escape")
    expect(page.locator("#status")).to_have_text("Stopped")
    eventually(lambda: served.record(job).state in TERMINAL, 10, "the job has ended")
    assert served.record(job).state == "cancelled"
    assert page.locator("#play").get_attribute("aria-label") == "Play"


def test_what_cannot_be_spoken_cannot_be_asked_for(page: Page) -> None:
    most = httpx.get(str(page.url) + "v1/models/hibari").json()["capabilities"]["max_input_chars"]
    for text, hint in (
        (" ", f"Type a text first: up to {most:,} characters."),
        ("a" * (most + 2), f"{most + 2:,} of {most:,} characters: shorten the text by 2 to have it spoken"),
    ):
        page.fill("#text", text)
        expect(page.locator("#count")).to_have_text(hint)
        expect(page.locator("#speak")).to_be_disabled()
        expect(page.locator("#download")).to_be_disabled()
    page.fill("#text", "a" * most)
    expect(page.locator("#speak")).to_be_enabled()
    expect(page.locator("#download")).to_be_enabled()


def test_an_error_is_told_in_words_until_something_is_changed(page: Page) -> None:
    page.fill("#text", HELLO)
    page.select_option("#model", SECOND_MODEL)
    expect(page.locator("#model-hint")).to_have_text(f"{SECOND_MODEL} has no workers now.")
    page.click("#speak")
    expect(page.locator("#error")).to_contain_text("The server cannot do this at the moment.")
    expect(page.locator("#error small")).to_have_text("no_workers")
    page.press("#text", "End")
    page.keyboard.type("!")
    expect(page.locator("#error")).to_be_hidden()
    page.click("#speak")
    expect(page.locator("#error")).to_be_visible()
    page.select_option("#model", "hibari")
    expect(page.locator("#error")).to_be_hidden()


def test_the_text_outlives_a_reload(page: Page) -> None:
    page.fill("#text", HELLO)
    page.reload()
    expect(page.locator("#text")).to_have_value(HELLO)
    expect(page.locator("#speak")).to_be_enabled()


def test_each_voice_is_listed_once_and_the_default_is_marked_and_chosen(page: Page, served: Farm) -> None:
    shown = page.locator("#voice option").all_inner_texts()
    voices = httpx.get(f"{served.base}/v1/audio/voices", params={"model": "hibari"}).json()["data"]
    assert sorted(shown) == sorted(name + " (default)" * (name == "heart") for name in (v["name"] for v in voices))
    assert page.evaluate("document.getElementById('voice').selectedOptions[0].text") == "heart (default)"


def test_the_position_is_told_in_seconds(page: Page) -> None:
    page.fill("#text", HELLO)
    page.click("#speak")
    await_played(page)
    length = page.locator("#received").inner_text()
    expect(page.locator("#position")).to_have_attribute("aria-valuetext", f"{length} of {length}")
    page.focus("#position")
    page.keyboard.press("Home")
    expect(page.locator("#position")).to_have_attribute("aria-valuetext", f"0.00 s of {length}")


def test_the_form_for_voices_is_there_only_for_models_that_can_speak_with_them(page: Page) -> None:
    expect(page.locator("#upload")).to_be_hidden()
    hint = f"hibari cannot speak with uploaded voices. To use your own, choose {SECOND_MODEL}."
    expect(page.locator("#no-upload")).to_have_text(hint)
    page.select_option("#model", SECOND_MODEL)
    expect(page.locator("#upload")).to_be_visible()
    expect(page.locator("#no-upload")).to_be_hidden()


def test_a_download_is_the_same_speech_in_the_chosen_format(page: Page, served: Farm) -> None:
    page.fill("#text", HELLO)
    page.click("#speak")
    await_played(page)
    page.select_option("#format", "flac")
    with page.expect_download() as download:
        page.click("#download")
    assert download.value.suggested_filename == "speech.flac"
    assert download.value.path().read_bytes() == spoken(served, seed=number(page, "used-seed"), response_format="flac")


def test_everything_can_be_done_from_the_keyboard(page: Page) -> None:
    page.keyboard.type(HELLO)
    page.keyboard.press("Control+Enter")
    await_played(page)
    reached = []
    for _ in range(30):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id"))
    wanted = ["speak", "format", "download", "play", "position", "model", "voice", "speed"]
    assert [name for name in reached if name in wanted][: len(wanted)] == wanted
    page.focus("#play")
    page.keyboard.press("Enter")
    expect(page.locator("#play")).to_have_attribute("aria-label", "Pause")
    await_played(page)


def test_a_voice_can_be_made_from_the_keyboard(page: Page) -> None:
    page.select_option("#model", SECOND_MODEL)
    page.focus("#sample")
    reached = []
    for _ in range(4):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id"))
    assert reached == ["voice-name", "voice-text", "consent", "save-voice"]


def test_colours_follow_the_system_until_the_user_chooses(browser: Browser, served: Farm) -> None:
    page = browser.new_page(base_url=served.base, color_scheme="dark")
    page.goto("/")
    expect(page.locator("body")).to_have_css("background-color", "rgb(19, 21, 20)")
    expect(page.locator("#theme")).to_have_text("Theme: auto")
    page.click("#theme")
    expect(page.locator("#theme")).to_have_text("Theme: light")
    expect(page.locator("body")).to_have_css("background-color", "rgb(246, 246, 243)")
    page.goto("/docs")
    expect(page.locator("body")).to_have_css("background-color", "rgb(246, 246, 243)")
    page.close()


def test_nothing_is_wider_than_a_small_phone(browser: Browser, served: Farm) -> None:
    page = browser.new_page(base_url=served.base, viewport={"width": 360, "height": 640})
    for path, loaded in (("/", "#model option"), ("/docs", "#errors td")):
        page.goto(path)
        page.wait_for_selector(loaded, state="attached")
        page.eval_on_selector_all("details:not(#contents)", UNFOLD)
        assert page.evaluate("document.documentElement.scrollWidth") == 360
    page.close()


def test_no_table_of_the_docs_is_cut_off_on_any_screen(page: Page) -> None:
    page.goto("/docs")
    page.wait_for_selector("#errors td", state="attached")
    page.eval_on_selector_all("#routes details", UNFOLD)
    for width in (360, 640, 900, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        rooms = page.locator(".scroll").evaluate_all("all => all.map((it) => it.clientWidth - it.scrollWidth)")
        assert len(rooms) > 20
        assert min(rooms) == 0, width


def test_the_contents_of_the_docs_are_folded_where_they_would_stand_before_everything(page: Page) -> None:
    page.goto("/docs")
    expect(page.locator("#contents a").last).to_be_visible()
    page.set_viewport_size({"width": 360, "height": 640})
    expect(page.locator("#contents a").last).to_be_hidden()
    page.click("#contents summary")
    page.click("#contents a >> nth=0")
    expect(page.locator("#contents a").last).to_be_hidden()


def test_a_recording_becomes_a_voice_that_is_chosen_and_can_be_deleted(
    page: Page, served: Farm, tmp_path: Path
) -> None:
    recording = tmp_path / "Ada.wav"
    recording.write_bytes(spoken(served, input=SENTENCE))
    page.select_option("#model", SECOND_MODEL)
    page.set_input_files("#sample", recording)
    expect(page.locator("#voice-name")).to_have_value("Ada")
    page.fill("#voice-text", HELLO)
    page.click("#save-voice")
    assert page.evaluate("document.getElementById('consent').validity.valueMissing"), "not without consent"
    page.check("#consent")
    page.click("#save-voice")
    expect(page.locator("#voice-status")).to_have_text("Ada is saved and chosen.")
    expect(page.locator("#voice")).to_have_value("Ada")
    (known,) = httpx.get(f"{served.base}/v1/audio/voices").json()["uploaded_voices"]
    assert (known["ref_text"], known["consent"]) == (HELLO, "I have the speaker's consent to use this voice.")

    page.on("dialog", Dialog.accept)
    page.click("text=Delete")
    expect(page.locator("#voice-status")).to_have_text("Ada is deleted.")
    expect(page.locator("#voices li")).to_have_count(0)
    expect(page.locator("#voice")).to_have_value("")


def locked(route: Route) -> None:
    """As a farm with keys answers where a key is needed; its lists are open to all."""
    given = route.request.header_value("authorization")
    if given == "Bearer sk-one":
        route.continue_()
    else:
        error = {"message": "see your key", "code": "invalid_api_key" if given else "missing_api_key"}
        route.fulfill(status=401, json={"error": error})


def test_a_page_of_a_server_with_keys_says_so_at_once(page: Page) -> None:
    expect(page.locator("#key-note")).to_be_hidden()
    page.route("**/v1/files*", locked)
    page.reload()
    expect(page.locator("#key-state")).to_have_text("This server asks for an API key before it speaks.")
    page.click("#give-key")
    expect(page.locator("#key-dialog")).to_contain_text("Whoever runs it makes one with speechmill keys create.")
    expect(page.locator("#key-wrong")).to_be_hidden()
    page.fill("#key", "sk-two")
    page.keyboard.press("Enter")
    expect(page.locator("#key-note.error")).to_contain_text("This server does not know your API key.")
    page.click("#give-key")
    expect(page.locator("#key-wrong")).to_be_visible()
    page.fill("#key", "sk-one")
    page.keyboard.press("Enter")
    expect(page.locator("#key-note")).to_be_hidden()


def test_a_key_is_asked_for_until_it_is_right_and_goes_along_from_then_on(page: Page) -> None:
    page.route("**/v1/audio/speech", locked)
    page.fill("#text", HELLO)
    page.click("#speak")
    expect(page.locator("#key-why")).to_have_text("This server asks for an API key.")
    expect(page.locator("#key-wrong")).to_be_hidden()
    page.fill("#key", "sk-two")
    page.keyboard.press("Enter")
    expect(page.locator("#key-wrong")).to_have_text("This server does not know that key.")
    page.fill("#key", "sk-one")
    page.keyboard.press("Enter")
    await_played(page)
    with page.expect_response("**/v1/audio/speech") as answered:
        page.click("#speak")
    assert answered.value.status == 200
    assert page.evaluate("[localStorage.length, sessionStorage['speechmill.key']]") == [0, "sk-one"]


def test_no_request_leaves_the_server_and_none_could(browser: Browser, served: Farm) -> None:
    page = browser.new_page(base_url=served.base)
    asked: list[str] = []

    def note(request: Request) -> None:
        asked.append(request.url)

    page.on("request", note)
    page.goto("/")
    page.fill("#text", HELLO)
    page.click("#speak")
    await_played(page)
    page.goto("/docs")
    page.wait_for_selector("#models details", state="attached")
    assert len(asked) > 20
    assert not [url for url in asked if not url.startswith(served.base)]
    refused = page.evaluate(
        """() => new Promise((resolve) => {
            addEventListener("securitypolicyviolation", (event) => resolve(event.effectiveDirective));
            new Image().src = "https://example.com/dot.png";
        })"""
    )
    assert refused == "img-src"
    page.close()


def test_frames_that_the_network_cuts_in_two_are_put_together_again(page: Page) -> None:
    heard = page.evaluate(
        """async () => {
            const { listen } = await import("/page/speech.js");
            const bytes = new Uint8Array(Int16Array.from({ length: 1000 }, (_, index) => index * 31).buffer);
            const cuts = [0, 1, 2, 5, 6, 999, 1000, 1003, 2000];
            const body = new ReadableStream({ start(stream) {
                cuts.slice(1).forEach((cut, index) => stream.enqueue(bytes.slice(cuts[index], cut)));
                stream.close();
            } });
            globalThis.fetch = async () => new Response(body, { headers: { "X-Sample-Rate": 8000, "X-Channels": 1 } });
            const all = [];
            for await (const piece of (await listen({ fields: {} }, 8000)).samples) all.push(...piece);
            return all;
        }"""
    )
    assert heard == [(index * 31 + 2**15) % 2**16 - 2**15 for index in range(1000)]


def test_a_stream_that_runs_dry_is_counted_and_loses_nothing(page: Page) -> None:
    last = page.evaluate(
        """async () => {
            const { Player } = await import("/page/player.js");
            const player = new Player(8000);
            await player.load();
            return new Promise((resolve) => {
                let fed = false;
                player.open(2, (report) => {
                    if (report.underruns && !fed) {
                        fed = true;
                        player.write(new Int16Array(2 * 1000));
                        player.end();
                    }
                    if (report.finished) resolve(report);
                });
                player.write(new Int16Array(2 * 2000));
            });
        }"""
    )
    assert last == {"position": 3000, "underruns": 1, "finished": True}


def test_the_docs_show_every_route_and_field_and_what_each_model_takes(page: Page, served: Farm) -> None:
    description = httpx.get(f"{served.base}/openapi.json").json()
    page.goto("/docs#post-v1-audio-speech")
    page.wait_for_selector("#models details", state="attached")
    page.wait_for_selector("#errors td", state="attached")
    routes = page.locator("#routes .route")
    shown = routes.evaluate_all("all => all.map(({ dataset: { method, path } }) => [method, path])")
    wanted = [[method, path] for path, operations in description["paths"].items() for method in operations]
    assert sorted(shown) == sorted(wanted)
    speech = page.locator("#post-v1-audio-speech")
    expect(speech).to_have_attribute("open", "")
    names = set(speech.locator("tbody th code").all_inner_texts())
    assert names >= set(description["components"]["schemas"]["SpeechBody"]["properties"])
    assert f"curl '{served.base}/v1/audio/speech'" in speech.locator("pre").inner_text()
    models = page.locator("#models details")
    assert models.locator(".path").all_inner_texts() == ["hibari", SECOND_MODEL]
    models.first.locator("summary").click()
    expect(models.first).to_contain_text("tts-1")
    answer = httpx.post(f"{served.base}/v1/audio/speech", json={"input": HELLO, "model": "hibari"}, timeout=60)
    sent = {name for name in answer.headers if name.startswith("x-") and not name.startswith("x-ratelimit")}
    assert sent <= {name.lower() for name in names}


def test_the_docs_render_what_the_websocket_is_told_to_be_like(page: Page) -> None:
    page.goto("/docs#get-v1-audio-speech-stream")
    socket = page.locator("#get-v1-audio-speech-stream")
    expect(socket).to_have_attribute("open", "")
    expect(socket.locator(".method")).to_have_text("ws")
    expect(socket.locator("h3").first).to_have_text("The client sends")
    assert {"session.config", "audio.start", "1008"} <= set(socket.locator("tbody th").all_inner_texts())
    expect(socket.locator("li code").first).to_have_text("stream_audio")
    assert socket.locator("pre").first.inner_text().startswith('> {"type": "session.config"')
    assert "`" not in socket.inner_text()
    assert "|" not in socket.inner_text()


def test_the_docs_explain_every_error_code(page: Page) -> None:
    page.goto("/docs#errors-title")
    row = page.locator("#errors tr", has_text="empty_input")
    expect(row).to_contain_text("The text holds nothing to speak.")
