"""Jobs on a farm of real processes: heard while they are made, whatever is killed, and fetched when they are done."""

import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from speechmill.cli.bench.farm import free_port
from speechmill.infra.keys import out_log
from speechmill.infra.protocol import retire

from .harness import Farm, assert_same_pcm, eventually

SENTENCES = (
    "The birch canoe slid on the smooth planks. Glue the sheet to the dark blue background. "
    "It is easy to tell the depth of a well. These days a chicken leg is a rare dish. "
)


def create(farm: Farm, text: str = SENTENCES, **request: Any) -> str:
    body = {"request": {"input": text, "seed": 3, "response_format": "pcm", **request}}
    answer = httpx.post(f"{farm.base}/v1/audio/jobs", json=body, timeout=30)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


def shown(farm: Farm, job: str, query: str = "wait=60&wait_for=terminal") -> dict[str, Any]:
    answer = httpx.get(f"{farm.base}/v1/audio/jobs/{job}?{query}", timeout=90)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def hear(farm: Farm, job: str, start: int = 0, most_bytes: int = 1 << 40) -> bytes:
    """Up to so many bytes of the job's stream, whole frames."""
    heard = bytearray()
    url = f"{farm.base}/v1/audio/jobs/{job}/stream?from_frame={start}"
    with httpx.stream("GET", url, timeout=120) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["x-start-frame"] == str(start)
        for piece in answer.iter_raw():
            heard += piece
            if len(heard) >= most_bytes:
                break
    return bytes(heard[: min(len(heard), most_bytes) // 2 * 2])


def test_a_job_goes_from_the_queue_to_a_file_and_tells_its_way(served: Farm) -> None:
    job = create(served, word_timestamps=True, response_format="flac")
    done = shown(served, job)
    assert done["status"] == "succeeded"
    times = [done[name] for name in ("created_at", "started_at", "first_audio_at", "finished_at", "expires_at")]
    assert times == sorted(times)
    result = done["result"]
    assert done["progress"] == {
        "stage": "store",
        "segments_done": 4,
        "segments_total": 4,
        "audio_ms": result["duration_ms"],
    }
    assert len(result["word_timestamps"]) == len(SENTENCES.split())
    assert result["usage"]["total_tokens"] == result["usage"]["input_tokens"] + result["usage"]["output_tokens"]
    fetched = httpx.get(result["url"])
    assert (fetched.headers["content-type"], len(fetched.content)) == ("audio/flac", result["bytes"])
    assert fetched.headers["content-disposition"] == f'attachment; filename="{job}.flac"'


@pytest.mark.parametrize("stored", [False, True])
def test_a_synchronous_call_is_a_job_like_any_other(served: Farm, stored: bool) -> None:
    body = {"input": "Hello there.", "store": stored, "metadata": {"a": "b"}, "response_format": "pcm"}
    spoken = httpx.post(f"{served.base}/v1/audio/speech", json=body, timeout=60)
    job = shown(served, spoken.headers["x-job-id"])
    assert (job["status"], job["metadata"], job["priority"]) == ("succeeded", {"a": "b"}, "interactive")
    assert job["expires_at"] - job["finished_at"] == (86_400 if stored else 600)
    assert httpx.get(job["result"]["url"]).content == spoken.content
    assert hear(served, job["id"]) == spoken.content


def test_the_samples_of_a_lossy_result_can_be_heard_after_their_log_has_gone(served: Farm) -> None:
    job = create(served, response_format="mp3")
    heard = hear(served, job)
    assert shown(served, job)["status"] == "succeeded"
    eventually(lambda: any(served.objects.list_prefix(f"spill/{job}/")), 20, "the samples are in the store")
    served.client.run(retire([out_log(job, 1)], 0, "chunks"))
    assert hear(served, job) == heard
    assert hear(served, job, 777) == heard[2 * 777 :]


def test_every_reader_has_a_place_of_its_own_and_leaving_cancels_nothing(served: Farm) -> None:
    job = create(served, SENTENCES * 3)
    part = hear(served, job, most_bytes=20_000)
    readers = [_Reader(served, job, start) for start in (0, 1, 9_999, len(part) // 2)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(120)
    whole = readers[0].heard
    assert all(reader.heard == whole[2 * reader.first :] for reader in readers)
    assert part + readers[-1].heard == whole
    assert shown(served, job)["status"] == "succeeded"
    assert httpx.get(f"{served.base}/v1/audio/jobs/{job}/audio?redirect=false").content == whole


class _Reader(threading.Thread):
    def __init__(self, farm: Farm, job: str, first: int) -> None:
        super().__init__(daemon=True)
        self.first = first
        self.heard = b""
        self._hear: Callable[[], bytes] = lambda: hear(farm, job, first)

    def run(self) -> None:
        self.heard = self._hear()


def test_a_stream_is_resumed_anywhere_while_workers_and_the_api_are_killed(farm: Farm) -> None:
    farm.settings["SPEECHMILL_WORKER__LEASE_S"] = "1"
    farm.settings["SPEECHMILL_WORKER__MAX_ATTEMPTS"] = "50"  # every kill hits the same few tasks here
    farm.start_api()
    for stages in (["prosody", "decoder"], ["finish", "store"]):
        farm.start_worker(stages, stages[0])
    farm.await_ready()
    undisturbed = hear(farm, create(farm, SENTENCES * 10))
    job = create(farm, SENTENCES * 10)
    heard = b""
    for disturb in (_kill("prosody", ["prosody", "decoder"]), _kill("finish", ["finish", "store"]), _another_api):
        heard += hear(farm, job, len(heard) // 2, most_bytes=len(undisturbed) // 20 + 2 * 777)
        assert farm.record(job).state == "running"
        disturb(farm)
    heard += hear(farm, job, len(heard) // 2, most_bytes=2)  # one frame alone
    heard += hear(farm, job, len(heard) // 2)
    farm.await_end([job], 60)
    again = {name.rsplit("/", 1)[1] for name, claims in farm.claims(job).items() if claims > 1}
    assert {"decoder", "finish"} <= again, "they were interrupted in their work"
    assert_same_pcm(heard, undisturbed)
    assert heard == farm.stored(job)
    frames = len(heard) // 2
    for start in (0, frames // 3, frames - 1, frames):
        assert hear(farm, job, start) == heard[2 * start :]


def _kill(name: str, stages: list[str]) -> Callable[[Farm], None]:
    def kill(farm: Farm) -> None:
        farm.kill(name)
        farm.start_worker(stages, name)

    return kill


def _another_api(farm: Farm) -> None:
    farm.kill("api")
    farm.start_api()
    farm.await_ready()


def test_a_request_that_is_sent_again_is_one_job_and_one_answer(served: Farm) -> None:
    body = {"input": SENTENCES, "response_format": "mp3"}
    key = {"Idempotency-Key": f"again-{free_port()}"}

    def speak(**changes: Any) -> httpx.Response:
        return httpx.post(f"{served.base}/v1/audio/speech", json={**body, **changes}, headers=key, timeout=60)

    answers: list[httpx.Response] = []
    together = [threading.Thread(target=lambda: answers.append(speak())) for _ in range(3)]
    for one in together:
        one.start()
    for one in together:
        one.join(60)
    later = speak()
    assert {answer.status_code for answer in (*answers, later)} == {200}
    assert {answer.headers["x-job-id"] for answer in answers} == {later.headers["x-job-id"]}
    assert {answer.content for answer in answers} == {later.content}
    assert later.headers["idempotent-replayed"] == "true"
    reused = speak(input="Something else.")
    assert (reused.status_code, reused.json()["error"]["code"]) == (422, "idempotency_key_reused")


def test_a_client_that_leaves_a_request_with_a_key_finds_its_answer_later(served: Farm) -> None:
    body = {"input": SENTENCES * 2, "response_format": "pcm", "stream_format": "audio"}
    headers = {"Idempotency-Key": f"left-{free_port()}"}
    url = f"{served.base}/v1/audio/speech"
    with httpx.stream("POST", url, json=body, headers=headers, timeout=60) as answer:
        job = answer.headers["x-job-id"]
        begun = next(answer.iter_raw())
    assert shown(served, job)["status"] == "succeeded"
    whole = httpx.post(url, json=body, headers=headers, timeout=60)
    assert whole.headers["x-job-id"] == job
    assert whole.content.startswith(begun)
    assert whole.content == served.stored(job)
