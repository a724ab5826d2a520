"""Texts that are spoken while they are still being written, over a whole farm with a tone for a model."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from speechmill.api.realtime.routes import ROUTE
from speechmill.infra.embedded import EmbeddedS3, EmbeddedValkey
from speechmill.infra.keys import new_id

from .harness import Farm, eventually
from .test_websocket import LONG, STREAM, Client

MODEL = "Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice"
TEXT = "The birch canoe slid on the smooth planks, and nobody in the boat said a word until it was dark."
CONFIG = {"model": MODEL, "seed": 5, "incremental": True, **STREAM}
REST = ("codec", "finish", "store")


@pytest.fixture(scope="module")
def farm(valkey: EmbeddedValkey, s3: EmbeddedS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    """The talker in a process of its own, so that it can be killed alone."""
    folder: Path = tmp_path_factory.mktemp("incremental")
    farm = Farm(valkey, s3, new_id("t"), folder)
    farm.settings = {
        "SPEECHMILL_MODELS": f'["{MODEL}", "hibari"]',
        "SPEECHMILL_TEST__STAND_IN": "true",
        "SPEECHMILL_WORKER__LEASE_S": "2",
    }
    farm.start_api()
    farm.start("talker", "worker", "--model", MODEL, "--stage", "talker")
    farm.start("rest", "worker", "--model", MODEL, "--stage", ",".join(REST))
    farm.await_ready()
    yield farm
    farm.stop()


@contextmanager
def talking(farm: Farm, **config: Any) -> Iterator[Client]:
    with connect(f"{farm.base.replace('http', 'ws')}{ROUTE}", max_size=None) as socket:
        client = Client(socket)
        client.say("session.config", **{**CONFIG, **config})
        yield client


@pytest.fixture(scope="module")
def whole(farm: Farm) -> bytes:
    """The text as it sounds when all of it is there from the beginning."""
    body = {"model": MODEL, "seed": 5, "input": TEXT, "response_format": "pcm"}
    answer = httpx.post(f"{farm.base}/v1/audio/speech", json=body, timeout=LONG)
    assert answer.status_code == 200
    return answer.content


def hear_seconds(client: Client, seconds: float) -> bytes:
    """What is heard first, at least so much of it."""
    assert client.hear()["type"] == "audio.start"
    heard = b""
    while len(heard) < 48_000 * seconds:
        heard += client.hear()
    return heard


def rest_of(client: Client) -> bytes:
    *audio, done, end = client.hear_until("session.done")
    assert (done["error"], end["total_sentences"]) == (False, 1)
    return b"".join(audio)


def idle(farm: Farm) -> bool:
    held = farm.client.read_hash(farm.client.keys.leased())
    return not any(int(count) for count in held.values())


def test_a_text_sounds_the_same_and_is_heard_before_it_is_complete(farm: Farm, whole: bytes) -> None:
    with talking(farm) as client:
        client.say("input.text", text=TEXT[:40])
        heard = hear_seconds(client, 0.06 * 40 - 0.1)
        for word in TEXT[40:].split(" "):
            client.say("input.text", text=word)
            client.say("input.text", text=" ")
        client.say("input.done")
        assert heard + rest_of(client) == whole


def test_a_job_of_an_open_text_is_told_as_what_it_became(farm: Farm) -> None:
    with talking(farm) as client:
        for word in ("Hello ", "there."):
            client.say("input.text", text=word)
        client.say("input.done")
        client.hear_until("session.done")
    (latest,) = httpx.get(f"{farm.base}/v1/audio/jobs?limit=1", timeout=LONG).json()["data"]
    farm.await_end([latest["id"]], 20)
    shown = httpx.get(f"{farm.base}/v1/audio/jobs/{latest['id']}?include=request", timeout=LONG).json()
    assert shown["request"]["input"] == "Hello there."
    assert shown["result"]["usage"]["input_token_details"]["text_tokens"] == len("Hello there.")


def test_a_talker_that_is_killed_in_the_middle_changes_no_sample(farm: Farm, whole: bytes) -> None:
    with talking(farm) as client:
        client.say("input.text", text=TEXT[:30])
        heard = hear_seconds(client, 1.0)
        farm.kill("talker")
        client.say("input.text", text=TEXT[30:60])
        farm.start("talker", "worker", "--model", MODEL, "--stage", "talker")
        client.say("input.text", text=TEXT[60:])
        client.say("input.done")
        assert heard + rest_of(client) == whole
    farm.await_started("talker")


@pytest.mark.parametrize("leaves", [False, True])
def test_who_cancels_or_leaves_in_the_middle_of_a_text_frees_the_workers(farm: Farm, leaves: bool) -> None:
    eventually(lambda: idle(farm), 20, "earlier work is done")
    with talking(farm) as client:
        client.say("input.text", text=TEXT[:30])
        hear_seconds(client, 1.0)
        assert not idle(farm)
        if not leaves:
            client.say("input.cancel")
            assert client.hear_until("session.done")[-1]["cancelled"] is True
            eventually(lambda: idle(farm), 1.0, "no slot is held any more")
    eventually(lambda: idle(farm), 1.0, "no slot is held any more")


def test_an_utterance_that_is_too_long_fails_and_frees_the_workers(farm: Farm) -> None:
    with talking(farm) as client:
        client.say("input.text", text="word " * 40)
        hear_seconds(client, 1.0)
        client.say("input.text", text="word " * 4000)
        *_, error, done = client.hear_until("audio.done")
        assert (error["code"], error["param"], done["error"]) == ("input_too_long", "input", True)
        eventually(lambda: idle(farm), 2.0, "no slot is held any more")
        client.say("input.done")
        assert client.hear()["type"] == "session.done"


def test_a_long_utterance_goes_on_in_the_next_unit(farm: Farm) -> None:
    with talking(farm) as client:
        for sentence in [TEXT] * 5:
            client.say("input.text", text=f"{sentence} ")
        client.say("input.done")
        heard = client.hear_until("session.done")
        done = [m for m in heard if isinstance(m, dict) and m["type"] == "audio.done"]
        assert [(m["sentence_index"], m["error"]) for m in done] == [(0, False), (1, False)]


def test_a_model_that_needs_all_of_the_text_says_so(farm: Farm) -> None:
    with talking(farm, model="hibari") as client:
        error = client.hear()
        assert (error["code"], error["param"]) == ("unsupported_parameter", "incremental")
    offered = {
        model["id"]: model["capabilities"]["incremental"]
        for model in httpx.get(f"{farm.base}/v1/models").json()["data"]
    }
    assert (offered[MODEL], offered["hibari"]) == (True, False)
