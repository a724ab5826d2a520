"""Qwen3-TTS on a farm of real processes, from the golden checkpoints: three tasks, cloned, batched, killed."""

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from speechmill.cli.main import app
from speechmill.cli.voices.precompute import precompute
from speechmill.infra.embedded import EmbeddedS3, EmbeddedValkey
from speechmill.infra.keys import new_id
from speechmill.models.checkpoints import recognise
from speechmill.models.registry import cards
from speechmill.models.stage import StageTask

from .harness import Farm, assert_same_pcm
from .speaking import (
    WORKERS,
    answer,
    assert_each_as_alone,
    assert_nothing_changes_when_workers_are_killed,
    data_url,
    heard,
    noise,
    refusal,
    spoken_in_process,
    whole,
)
from .test_incremental import rest_of, talking

GOLDENS = Path(os.environ.get("SPEECHMILL_GOLDENS", Path(__file__).parents[1] / "goldens"))
CHECKPOINTS = {name: GOLDENS / "qwen3_tts" / name for name in ("base", "custom_voice", "voice_design")}
MODELS = {name: recognise(folder) for name, folder in CHECKPOINTS.items()}
WIDTH = json.loads((CHECKPOINTS["base"] / "config.json").read_text())["talker_config"]["hidden_size"]
DRAWN = random.Random(21)
CPU = {"device": "cpu", "live_chunks": [DRAWN.randint(1, 9) for _ in range(4)]}
CLIP = noise(22_050)
WORDS = "Some noise."
WHO: dict[str, dict[str, Any]] = {
    "base": {"speaker_embedding": [0.1 * (number % 7 - 3) for number in range(WIDTH)]},
    "custom_voice": {},
    "voice_design": {"instructions": "A calm old man."},
}
"""A request of each task needs it."""


@pytest.fixture(scope="module")
def voices(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one voice, "computed"."""
    recording, folder = tmp_path_factory.mktemp("recordings") / "computed.wav", tmp_path_factory.mktemp("voices")
    recording.write_bytes(CLIP)
    precompute([recording], str(CHECKPOINTS["base"]), folder, "icl", WORDS, "cpu")
    return folder


@pytest.fixture(scope="module")
def farm(
    valkey: EmbeddedValkey, s3: EmbeddedS3, voices: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Farm]:
    farm = Farm(valkey, s3, new_id("t"), tmp_path_factory.mktemp("qwen"))
    stages = {f"{model}/{stage}": CPU for model in MODELS.values() for stage in cards()[model].stage_names}
    farm.settings |= {
        "SPEECHMILL_MODELS": json.dumps([*MODELS.values()]),
        "SPEECHMILL_CHECKPOINTS": json.dumps({MODELS[name]: str(folder) for name, folder in CHECKPOINTS.items()}),
        "SPEECHMILL_STAGES": json.dumps(stages),
        "SPEECHMILL_VOICES__PRECOMPUTED": json.dumps([str(voices)]),
        "SPEECHMILL_WORKER__LEASE_S": "2",
    }
    farm.start_api()
    for name, named in WORKERS.items():
        farm.start_worker(named, name)
    farm.await_ready()
    yield farm
    farm.stop()


def body(name: str, text: str, seed: int, tokens: int, **fields: Any) -> dict[str, Any]:
    asked = {"model": MODELS[name], "input": text, "seed": seed, "max_new_tokens": tokens, "response_format": "pcm"}
    return asked | fields


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_the_farm_speaks_what_the_engine_speaks(farm: Farm, name: str) -> None:
    asked = body(name, "It was a bright cold day in April.", 7, 20, **WHO[name])
    task = StageTask("job", 1, 0, asked["input"], "default", 7, {"max_new_tokens": 20, **WHO[name]})
    wanted = spoken_in_process(cards()[MODELS[name]], CHECKPOINTS[name], task)
    assert len(wanted) > 0
    assert_same_pcm(heard(farm, asked), wanted)
    assert_same_pcm(whole(farm, asked), wanted)


@pytest.mark.parametrize("params", [{"ref_text": WORDS}, {"x_vector_only_mode": True}], ids=["icl", "xvec"])
def test_the_farm_clones_as_the_engine_does(farm: Farm, voices: Path, params: dict[str, Any]) -> None:
    (computed,) = voices.glob("computed*.safetensors")
    assets = {"features": computed.read_bytes()}
    task = StageTask("job", 1, 0, "This is a test.", "", 3, {"max_new_tokens": 20, **params}, assets)
    wanted = spoken_in_process(cards()[MODELS["base"]], CHECKPOINTS["base"], task)
    assert_same_pcm(heard(farm, body("base", task.text, 3, 20, ref_audio=data_url(CLIP), **params)), wanted)


def test_requests_that_come_and_go_beside_each_other_sound_as_each_does_alone(farm: Farm) -> None:
    clone = {"ref_audio": data_url(CLIP), "ref_text": WORDS}
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("base", clone),
        ("base", {"ref_audio": data_url(CLIP), "x_vector_only_mode": True}),
        ("base", WHO["base"] | {"non_streaming_mode": True}),
        ("custom_voice", {"language": "English"}),
        ("custom_voice", {"non_streaming_mode": False}),
    ]
    asked = []
    for number in range(8):
        name, fields = kinds[number % len(kinds)]
        text = "One sentence follows another. " * (1 + number % 3)
        asked.append(body(name, text, number, DRAWN.randint(5, 40), **fields))
    assert_each_as_alone(farm, asked, DRAWN)


def test_workers_that_are_killed_in_the_middle_change_nothing(farm: Farm) -> None:
    """Of a clone in context: the codec has heard its reference before."""
    asked = body("base", "This goes on for a while.", 11, 80, ref_audio=data_url(CLIP), ref_text=WORDS)
    assert_nothing_changes_when_workers_are_killed(farm, asked, DRAWN)


@pytest.mark.parametrize("name", ["base", "custom_voice"])
def test_a_text_that_is_still_being_written_sounds_as_if_it_had_been_there(farm: Farm, name: str) -> None:
    text = "One sentence follows another, and it takes a while until all of it is written."
    clone = {"ref_audio": data_url(CLIP), "ref_text": WORDS} if name == "base" else {}
    asked = body(name, text, 9, 60, **clone)
    wanted = heard(farm, asked | {"non_streaming_mode": False})
    config = {key: value for key, value in asked.items() if key != "input"}
    with talking(farm, **config) as client:
        for word in text.split(" "):
            client.say("input.text", text=f"{word} ")
        client.say("input.done")
        assert client.hear()["type"] == "audio.start"
        assert_same_pcm(rest_of(client), wanted)


def test_words_that_come_after_the_model_has_ended_are_spoken_too(farm: Farm) -> None:
    config = {key: value for key, value in body("custom_voice", "", 3, 3).items() if key != "input"}
    with talking(farm, **config) as client:
        client.say("input.text", text="This is cut off, ")
        client.hear_until("audio.done")
        client.say("input.text", text="and this comes late.")
        client.say("input.done")
        start, *audio, done, end = client.hear_until("session.done")
    assert (start["type"], done["error"], end["total_sentences"]) == ("audio.start", False, 2)
    assert done["finish_reason"] == "length"
    assert b"".join(audio)


def test_a_voice_is_the_same_given_uploaded_or_computed_beforehand(farm: Farm) -> None:
    fields = {"name": "Uploaded", "consent": "me", "ref_text": WORDS}
    files = {"audio_sample": ("clip.wav", CLIP, "audio/wav")}
    made = httpx.post(f"{farm.base}/v1/audio/voices", data=fields, files=files, timeout=60)
    assert made.status_code == 200, made.text
    wanted = answer(farm, body("base", "Hello there.", 5, 20, ref_audio=data_url(CLIP), ref_text=WORDS))
    counts = {name: count for name, count in wanted.headers.items() if name.endswith("-tokens")}
    assert int(counts["x-vllm-omni-input-audio-tokens"]) > 0
    for voice in ("uploaded", "computed"):
        other = answer(farm, body("base", "Hello there.", 5, 20, voice=voice))
        assert_same_pcm(other.content, wanted.content)
        assert counts.items() <= other.headers.items()
    timbre = whole(farm, body("base", "Hello there.", 5, 20, voice="uploaded", x_vector_only_mode=True))
    assert_same_pcm(whole(farm, body("base", "Hello there.", 5, 20, voice="computed", x_vector_only_mode=True)), timbre)
    assert timbre != wanted.content


def test_speech_that_a_limit_cut_off_says_so_to_whoever_asks(farm: Farm) -> None:
    """Also where it was only one segment of several."""
    asked = body("custom_voice", "One sentence. " * 40, 3, 4)
    made = answer(farm, asked | {"store": True})
    assert made.headers["x-finish-reason"] == "length"
    job = f"{farm.base}/v1/audio/jobs/{made.headers['x-job-id']}"
    assert httpx.get(job, timeout=30).json()["result"]["finish_reason"] == "length"
    again = httpx.get(f"{job}/stream", headers={"Accept": "text/event-stream"}, timeout=30).text
    for events in (again, answer(farm, asked | {"stream": True}).text):
        last = json.loads(events.rpartition("data: ")[2])
        assert (last["type"], last["finish_reason"]) == ("speech.audio.done", "length")


def test_the_speakers_are_those_of_the_checkpoint(farm: Farm) -> None:
    config = json.loads((CHECKPOINTS["custom_voice"] / "config.json").read_text())["talker_config"]
    listed = httpx.get(f"{farm.base}/v1/audio/voices", params={"model": MODELS["custom_voice"]}, timeout=30).json()
    assert set(config["spk_id"]) <= set(listed["voices"])
    name = sorted(config["spk_id"])[-1]
    asked = body("custom_voice", "Hello.", 3, 12, voice=name.upper())
    task = StageTask("job", 1, 0, "Hello.", name, 3, {"max_new_tokens": 12})
    wanted = spoken_in_process(cards()[MODELS["custom_voice"]], CHECKPOINTS["custom_voice"], task)
    assert_same_pcm(whole(farm, asked), wanted)


def test_what_a_checkpoint_is_not_made_for_is_refused(farm: Farm) -> None:
    clip = data_url(CLIP)
    for name, fields, code in (
        ("base", {}, "ref_audio_required"),
        ("base", {"ref_audio": clip}, "ref_text_required"),
        ("base", {"speaker_embedding": [0.5] * (WIDTH + 1)}, "speaker_embedding_dimension"),
        ("base", {**WHO["base"], "task_type": "VoiceDesign"}, "task_model_mismatch"),
        ("base", {**WHO["base"], "language": "Klingon"}, "invalid_value"),
        ("custom_voice", {"voice": "nobody"}, "invalid_voice"),
        ("custom_voice", {"ref_audio": clip, "ref_text": WORDS}, "task_model_mismatch"),
        ("voice_design", {}, "instructions_required"),
    ):
        status, told = refusal(farm, body(name, "Hi.", 1, 5, **fields))
        assert (status, told) == (400, code), (name, fields.keys())


def test_commands_say_what_a_checkpoint_asks_for_and_tell_whether_a_limit_cut_it_off(
    farm: Farm, tmp_path: Path
) -> None:
    def run(*arguments: str) -> str:
        done = CliRunner().invoke(app, arguments, env={"SPEECHMILL_URL": farm.base})
        assert done.exit_code == 0, done.exception
        return done.stdout

    clip, source, out = tmp_path / "anna.wav", tmp_path / "lines.jsonl", tmp_path / "out"
    clip.write_bytes(CLIP)
    clone = ("--model", MODELS["base"], "--ref-audio", str(clip), "--x-vector-only")
    said = json.loads(run("say", "Hi.", *clone, "-o", str(tmp_path / "a.wav"), "--json"))
    source.write_text('{"input": "Hi.", "max_new_tokens": 2}\n')
    described = ("--model", MODELS["voice_design"], "--instructions", "A calm old man.", "--language", "English")
    run("submit", str(source), "--out", str(out), *described)
    (line,) = map(json.loads, (out / "manifest.jsonl").read_text().splitlines())
    assert said["finish_reason"] in ("stop", "length")
    assert (line["status"], line["finish_reason"]) == ("succeeded", "length")
