"""The jobs view of the page, used as people do: in a browser, against a whole farm."""

import json
import re
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Dialog, Page, Request, Route, expect

from speechmill.infra.keys import new_id
from speechmill.infra.messages import Claim
from speechmill.infra.protocol import claim, handback

from ..harness import Farm
from .browser import SECOND_MODEL, number

HELLO = "Hello."
SENTENCES = "The birch canoe slid on the smooth planks. Glue the sheet to the dark blue background. "
FAILURE = json.dumps({"code": "generation_failed", "message": "<b>it went wrong</b>"})


def create(farm: Farm, text: str = HELLO, model: str = "hibari", **fields: Any) -> str:
    body = {"request": {"model": model, "input": text, "response_format": "wav"}, **fields}
    answer = httpx.post(f"{farm.base}/v1/audio/jobs", json=body, timeout=30)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


def job_of(farm: Farm, job: str) -> dict[str, Any]:
    return dict(httpx.get(f"{farm.base}/v1/audio/jobs/{job}", timeout=30).json())


def give_up(farm: Farm, job: str) -> None:
    """A worker fails at the job as often as it may."""
    claimed = farm.client.run(claim(f"{SECOND_MODEL}/generator", "w", new_id("n"), 60_000, 0))
    assert isinstance(claimed, Claim)
    assert claimed.task.job == job
    farm.client.run(handback(claimed.task, claimed.token, FAILURE))


def await_heard(page: Page) -> int:
    """Frames, when all were received and the player has stopped by itself at its end."""
    page.wait_for_function(
        """() => document.querySelector("#job-tape .round").ariaLabel === "Play"
               && document.getElementById("job-received").value > 0
               && document.getElementById("job-received").value === document.getElementById("job-played").value"""
    )
    return number(page, "job-played")


def names(page: Page) -> list[str]:
    return page.locator("#rows th a").all_inner_texts()


def test_a_text_is_queued_played_while_it_is_made_to_its_last_sample_and_downloaded(page: Page, served: Farm) -> None:
    page.fill("#text", SENTENCES)
    page.click("#queue")
    expect(page).to_have_url(re.compile(r"/#jobs\?job=job_\w+$"))
    page.click("#job-tape .round")
    job = page.url.rpartition("=")[2]
    played = await_heard(page)
    expect(page.locator("#job-state")).to_have_text("Succeeded")
    expect(page.locator("#job-progress .amount")).to_contain_text("2 of 2 ·")
    row = page.locator("#rows tr.opened")
    expect(row).to_contain_text("Succeeded")
    expect(row.locator("progress")).to_have_attribute("value", "2")
    assert page.locator("#job-text").inner_text().strip() == SENTENCES.strip()
    pcm = served.stored(job)
    assert played == len(pcm) // 2
    with page.expect_download() as download:
        page.click("#job-download")
    assert download.value.suggested_filename == f"{job}.wav"
    assert download.value.path().read_bytes()[44:] == pcm
    with page.expect_download() as subtitles:
        page.click("#job-srt")
    assert subtitles.value.path().read_text().startswith("1\n00:00:00")
    page.reload()
    page.click("#job-tape .round")
    assert await_heard(page) == len(pcm) // 2, "the stored file is as long"


def test_a_dead_letter_says_what_went_wrong_and_is_retried(page: Page, served: Farm) -> None:
    dead = [create(served, model=SECOND_MODEL, max_attempts=1, custom_id=name) for name in ("poison-1", "poison-2")]
    for job in dead:
        give_up(served, job)
    page.click("nav >> text=Jobs")
    page.select_option("#filter-status", "dead")
    expect(page.locator("#rows tr")).to_have_count(2)
    assert names(page) == ["poison-2", "poison-1"]
    page.click("text=poison-1")
    fault = page.locator("#job-fault")
    expect(fault).to_contain_text("The model made no audio of this.")
    expect(fault).to_contain_text("generation_failed <b>it went wrong</b>")
    expect(fault).to_contain_text("Try again. If it fails once more, try with a new seed, or change the text.")
    seed = served.record(dead[0]).request.seed
    page.click("#job-retry-seed")
    expect(page.locator("#job-state")).to_contain_text("Queued")
    expect(fault).to_be_hidden()
    assert served.record(dead[0]).request.seed != seed
    expect(page.locator("#rows tr")).to_have_count(1)
    page.click("#retry-shown")
    expect(page.locator("#jobs-done")).to_have_text("1 of 1 queued again.")
    expect(page.locator("#no-jobs")).to_have_text(re.compile("No dead letters: no job was given up on."))
    served.start("tone", "worker", "--model", SECOND_MODEL, "--stage", "generator,codec")
    expect(page.locator("#job-state")).to_have_text("Succeeded", timeout=30_000)
    page.click("#job-tape .round")
    assert await_heard(page) == len(served.stored(dead[0])) // 2
    served.await_end(dead, 30)
    served.kill("tone")


def test_a_job_is_cancelled_and_deleted(page: Page, served: Farm) -> None:
    job = create(served, model=SECOND_MODEL, custom_id="unwanted")
    page.goto(f"/#jobs?job={job}")
    expect(page.locator("#job-state")).to_contain_text("Queued")
    page.click("#job-cancel")
    expect(page.locator("#job-state")).to_have_text("Cancelled")
    expect(page.locator("#rows tr.opened .badge")).to_have_text("Cancelled")
    expect(page.locator("#job-cancel")).to_be_disabled()
    page.on("dialog", Dialog.accept)
    page.click("#job-delete")
    expect(page.locator("#job")).to_be_hidden()
    expect(page.locator("#rows a", has_text="unwanted")).to_have_count(0)
    assert httpx.get(f"{served.base}/v1/audio/jobs/{job}").status_code == 404


def test_the_list_is_filtered_paged_and_remembered(page: Page, served: Farm) -> None:
    items = [{"custom_id": f"p-{number}", "request": {"model": "hibari", "input": HELLO}} for number in range(25)]
    group = httpx.post(f"{served.base}/v1/audio/jobs", json={"requests": items}, timeout=30).json()["id"]
    page.click("nav >> text=Jobs")
    page.fill("#filter-group_id", group)
    expect(page.locator("#group-state")).to_contain_text("25 jobs")
    expect(page.locator("#rows tr").first).to_contain_text(re.compile(r"p-2\d"))  # several are of the same millisecond
    expect(page.locator("#rows tr")).to_have_count(20)
    page.click("#more")
    expect(page.locator("#rows tr")).to_have_count(25)
    assert len(set(names(page))) == 25
    expect(page.locator("#more")).to_be_hidden()
    page.fill("#filter-custom_id", "p-7")
    expect(page.locator("#rows tr")).to_have_count(1)
    page.reload()
    expect(page.locator("#filter-custom_id")).to_have_value("p-7")
    expect(page.locator("#rows tr")).to_have_count(1)
    page.select_option("#filter-status", "expired")
    expect(page.locator("#no-jobs")).to_have_text(re.compile("No job is like that."))
    page.click("#clear-filters")
    expect(page).to_have_url(re.compile("/#jobs$"))
    expect(page.locator("#filter-group_id")).to_have_value("")
    expect(page.locator("#rows tr")).to_have_count(20)


def test_each_line_becomes_a_job_of_a_group_that_is_cancelled_retried_and_fetched(page: Page, served: Farm) -> None:
    page.select_option("#model", SECOND_MODEL)
    page.fill("#text", "One.\n\n Two. \nThree.")
    expect(page.locator("#queue-lines")).to_have_text("Queue 3 lines")
    page.click("#queue-lines")
    expect(page.locator("#group-state")).to_have_text("In progress 3 jobs")
    expect(page.locator("#rows tr")).to_have_count(3)
    assert sorted(names(page)) == ["line-1", "line-2", "line-3"]
    page.click("#group-cancel")
    expect(page.locator("#group-counts")).to_have_text("Cancelled 3")
    expect(page.locator("#rows .badge", has_text="Cancelled")).to_have_count(3)
    page.click("#group-retry-cancelled")
    expect(page.locator("#group-counts")).to_have_text("Queued 3")
    served.start("tone", "worker", "--model", SECOND_MODEL, "--stage", "generator,codec")
    expect(page.locator("#group-counts")).to_have_text("Succeeded 3", timeout=30_000)
    expect(page.locator("#rows .badge", has_text="Succeeded")).to_have_count(3)
    expect(page.locator("#jobs-state")).to_have_text("All have ended")
    with page.expect_download() as archive:
        page.click("#group-archive")
    assert archive.value.suggested_filename.startswith("jobgrp_")
    assert archive.value.path().read_bytes().startswith(b"PK")
    served.kill("tone")


def test_everything_of_a_job_can_be_done_from_the_keyboard(page: Page, served: Farm) -> None:
    job = create(served, custom_id="by-hand")
    served.await_end([job], 30)
    page.focus("[data-place=jobs]")
    page.keyboard.press("Enter")
    link = page.locator("#rows a", has_text="by-hand")
    expect(link).to_be_visible()
    reached = []
    while "by-hand" not in reached:
        assert len(reached) < 20
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id || document.activeElement.textContent"))
    wanted = ["refresh", "filter-status", "filter-model", "filter-group_id", "filter-custom_id", "by-hand"]
    assert [name for name in reached if name in wanted] == wanted
    page.keyboard.press("Enter")
    expect(page.locator("#job-title")).to_be_focused()
    expect(page.locator("#job-title")).to_have_text("by-hand")
    expect(page.locator("#job-download")).to_be_enabled()
    reached = []
    for _ in range(8):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id || document.activeElement.ariaLabel"))
    assert [name for name in reached if name != "job-copy-id"][:3] == ["job-close", "Play", "job-download"]
    page.keyboard.press("Escape")
    expect(page.locator("#job")).to_be_hidden()
    expect(link).to_be_focused()


def test_the_list_is_asked_for_only_while_something_is_at_work_and_seen(page: Page, served: Farm) -> None:
    served.await_end([job["id"] for job in httpx.get(f"{served.base}/v1/audio/jobs?limit=100").json()["data"]], 60)
    asked: list[str] = []

    def note(request: Request) -> None:
        asked.append(request.url)

    page.clock.install()
    page.click("nav >> text=Jobs")
    expect(page.locator("#jobs-state")).to_have_text("All have ended")
    page.on("request", note)
    page.clock.run_for(60_000)
    assert not asked
    waiting = create(served, model=SECOND_MODEL)
    page.click("#refresh")
    expect(page.locator("#jobs-state")).to_have_text("Live")
    asked.clear()
    for _ in range(3):
        with page.expect_response("**/v1/audio/jobs?*"):
            page.clock.run_for(3_100)
    assert len([url for url in asked if "/v1/audio/jobs?" in url]) == 3
    page.context.set_offline(True)
    page.clock.run_for(3_100)
    expect(page.locator("#jobs-state")).to_have_text("Connection lost. Trying again…")
    page.context.set_offline(False)
    page.clock.run_for(3_100)
    expect(page.locator("#jobs-state")).to_have_text("Live")
    page.click("[data-place=speak]")
    page.clock.run_for(4_000)
    asked.clear()
    page.clock.run_for(60_000)
    assert not [url for url in asked if "/jobs" in url]
    httpx.post(f"{served.base}/v1/audio/jobs/{waiting}/cancel")


def test_a_batch_is_listed_and_cancelled(page: Page, served: Farm) -> None:
    line = {"custom_id": "a", "method": "POST", "url": "/v1/audio/speech", "body": {"model": "hibari", "input": HELLO}}
    files = {"file": ("in.jsonl", json.dumps(line).encode())}
    file = httpx.post(f"{served.base}/v1/files", files=files, data={"purpose": "batch"}).json()["id"]
    body = {"input_file_id": file, "endpoint": "/v1/audio/speech", "completion_window": "24h"}
    batch = httpx.post(f"{served.base}/v1/batches", json=body).json()["id"]
    page.click("nav >> text=Jobs")
    item = page.locator("#batches li", has_text=batch)
    expect(item).to_contain_text("Validating")
    item.get_by_role("button", name=f"Cancel {batch}").click()
    expect(item).to_contain_text(re.compile("Cancel(ling|led)"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_control_has_a_name_and_nothing_is_wider_than_a_small_phone(
    browser: Browser, served: Farm, scheme: Any
) -> None:
    job = create(served, SENTENCES, custom_id="x" * 200)
    page = browser.new_page(base_url=served.base, viewport={"width": 320, "height": 640}, color_scheme=scheme)
    for path in ("/#jobs", f"/#jobs?custom_id={'x' * 200}&job={job}"):
        page.goto("/docs")
        page.goto(path)
        expect(page.locator("#rows tr").first).to_be_attached()
        if "job=" not in path:
            expect(page.get_by_role("search", name="Filter jobs")).to_be_visible()
        else:
            expect(page.locator("#job-text")).to_have_text(SENTENCES.strip())
        assert page.evaluate("document.documentElement.scrollWidth") == 320
        unnamed = page.locator("#jobs-view :is(a, button, input, select, progress):visible").evaluate_all(
            """all => all.filter((it) => !(it.ariaLabel || it.textContent.trim() || it.labels?.length))
                         .map((it) => it.outerHTML)"""
        )
        assert unnamed == []
    ids = page.locator("[id]").evaluate_all("all => all.map((it) => it.id)")
    assert len(set(ids)) == len(ids)
    expect(page.get_by_role("main")).to_have_count(1)
    page.close()


def locked(route: Route) -> None:
    """As a farm with keys answers without one."""
    route.fulfill(status=401, json={"error": {"message": "see your key", "code": "missing_api_key"}})


def test_a_key_is_asked_for_once_and_not_at_every_look(page: Page) -> None:
    page.route("**/v1/audio/jobs?*", locked)
    page.click("nav >> text=Jobs")
    expect(page.locator("#key-dialog")).to_be_visible()
    page.click("#key-cancel")
    expect(page.locator("#jobs-error")).to_contain_text("This server asks for an API key.")
    page.wait_for_timeout(3_500)
    expect(page.locator("#key-dialog")).to_be_hidden()
