"""Folders of voices that are computed beforehand: from recordings, and between two of them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from goldens import Goldens
from safetensors.numpy import load_file
from typer.testing import CliRunner, Result

from speechmill.cli.main import app
from speechmill.infra.embedded import EmbeddedS3
from speechmill.infra.objects import ObjectStore
from speechmill.infra.precomputed import MANIFEST, read_precomputed
from speechmill.infra.precomputed_folder import add_voice
from speechmill.infra.tensors import write_tensor
from speechmill.models.common.speakers import lerp, slerp

GOLDENS = Goldens("qwen3_tts")
CHECKPOINT = GOLDENS.folder / "base"
(RECORDED,) = GOLDENS.of_kinds("voice_clone_prompt")
BLENDED = GOLDENS.of_kinds("interpolation")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["voices", *map(str, arguments)])


def file_of(folder: Path, name: str) -> Path:
    """Of a voice, as the manifest says."""
    return folder / json.loads((folder / MANIFEST).read_text())["voices"][name]["file"]


def refused(*arguments: object) -> str:
    result = run(*arguments)
    assert result.exception is not None
    return str(result.exception)


def values(name: str) -> np.ndarray[Any, np.dtype[Any]]:
    return GOLDENS.tensor(name).numpy()


@pytest.fixture
def recordings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Those of the goldens, as users have them; they last less than a second."""
    monkeypatch.setenv("SPEECHMILL_LIMITS__REF_AUDIO_SECONDS", "[0.5, 30]")
    inputs = RECORDED["inputs"]
    paths = []
    for name, key in (("anna", "ref_audio"), ("ben", "ref_audio_2")):
        paths.append(tmp_path / f"{name}.wav")
        soundfile.write(paths[-1], values(inputs[key]), inputs["sample_rate"], subtype="FLOAT")
        paths[-1].with_suffix(".txt").write_text(f"{inputs['ref_text']}\n")
    return paths


def test_recordings_become_voices_that_a_farm_finds_and_that_upstream_would_have_made(
    recordings: list[Path], tmp_path: Path, s3: EmbeddedS3
) -> None:
    out, told = tmp_path / "voices", RECORDED["outputs"]
    result = run("precompute", *recordings, "--model", CHECKPOINT, "--out", out, "--json")
    assert [made["name"] for made in json.loads(result.stdout)] == ["anna", "ben"], result.output
    anna, ben = (load_file(file_of(out, name)) for name in ("anna", "ben"))
    np.testing.assert_array_equal(anna["ref_code"], values(told["ref_code"]))
    for made, expected in ((anna, "speaker_embedding"), (ben, "speaker_embedding_2")):
        np.testing.assert_allclose(made["speaker_embedding"], values(told[expected]), rtol=0, atol=RECORDED["atol"])
    width = anna["speaker_embedding"].size
    objects = ObjectStore(s3.bucket, s3.endpoint_url, s3.access_key, s3.secret_key)
    found = read_precomputed([str(out)], {"qwen3_tts": frozenset({width})}, objects)
    assert [(voice.name, voice.mode, voice.ref_text, voice.dim) for voice in found] == [
        (name, "icl", RECORDED["inputs"]["ref_text"], width) for name in ("anna", "ben")
    ]


def test_a_voice_of_timbre_alone_needs_no_words_and_replaces_one_of_its_name(
    recordings: list[Path], tmp_path: Path
) -> None:
    out = tmp_path / "voices"
    for recording in recordings:
        recording.with_suffix(".txt").unlink()
    named = run("precompute", recordings[0], "--model", CHECKPOINT, "-o", out, "--ref-text", "Hello.")
    assert named.exit_code == 0, named.output
    run("precompute", *recordings, "--model", CHECKPOINT, "-o", out, "--mode", "xvec")
    voices = json.loads((out / MANIFEST).read_text())["voices"]
    assert {name: (entry["mode"], entry["ref_text"]) for name, entry in voices.items()} == {
        "anna": ("xvec", ""),
        "ben": ("xvec", ""),
    }
    assert load_file(file_of(out, "anna")).keys() == {"speaker_embedding"}
    assert {path.name for path in out.iterdir()} == {MANIFEST, *(entry["file"] for entry in voices.values())}


def test_what_cannot_become_a_voice_is_said_in_a_line(recordings: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "voices"
    asked = ("--model", CHECKPOINT, "-o", out)
    assert "no mode 'loud'; it has: icl, xvec" in refused("precompute", recordings[0], *asked, "--mode", "loud")
    recordings[0].with_suffix(".txt").unlink()
    assert "what is said in anna.wav" in refused("precompute", *recordings, *asked)
    assert "holds for one recording" in refused("precompute", *recordings, *asked, "--ref-text", "Hi.")
    recordings[1].write_bytes(b"no sound")
    assert f"{recordings[1]} cannot be used: it is no wav" in refused("precompute", recordings[1], *asked)
    for seconds, told in ((0.4, "lasts less than 0.5 s"), (31, "lasts more than 30 s")):
        soundfile.write(recordings[1], np.zeros(int(seconds * 8000)), 8000)
        assert f"{recordings[1]} {told}" in refused("precompute", recordings[1], *asked)
    assert "takes no precomputed voices" in refused(
        "precompute", recordings[0], "--model", GOLDENS.folder / "voice_design", "-o", out
    )
    assert "no such folder: ./none" in refused("precompute", recordings[0], "--model", "./none", "-o", out)
    away = ("--mode", "xvec", "--device", "cuda:99")
    assert "; --device cpu does without" in refused("precompute", recordings[0], *asked, *away)
    assert not out.exists()


@pytest.mark.parametrize("case", BLENDED, ids=[case["name"] for case in BLENDED])
def test_a_speaker_between_two_is_on_the_line_or_on_the_arc(case: dict[str, Any]) -> None:
    first, second, weight = values(case["inputs"]["a"]), values(case["inputs"]["b"]), case["inputs"]["alpha"]
    for blend, expected in ((lerp, "lerp"), (slerp, "slerp")):
        made = blend(first, second, weight)
        np.testing.assert_allclose(made, values(case["outputs"][expected]), rtol=0, atol=case["atol"])
        np.testing.assert_allclose(blend(first, second, 0.0), first, rtol=1e-6)
        np.testing.assert_allclose(blend(first, second, 1.0), second, rtol=1e-6, atol=1e-6)


def test_speakers_of_one_direction_are_blended_too() -> None:
    first = np.ones(4, np.float32)
    np.testing.assert_allclose(slerp(first, 3 * first, 0.5), 2 * first)
    np.testing.assert_allclose(slerp(first, -first, 0.5), 0 * first)


def folder_of(path: Path, **speakers: list[float]) -> Path:
    for name, numbers in speakers.items():
        add_voice(path, "qwen3_tts", name, "xvec", "", write_tensor("speaker_embedding", np.float32(numbers)))
    return path


def test_a_blend_is_one_more_voice_of_the_folder(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "voices", anna=[1, 0], ben=[0, 3])
    straight = run("blend", folder, "Anna", "ben", "--name", "Anben", "--weight", 0.25)
    assert straight.stdout == f"{file_of(folder, 'Anben')}\n"
    np.testing.assert_allclose(load_file(file_of(folder, "Anben"))["speaker_embedding"], [0.75, 0.75])
    assert run("blend", folder, "anna", "ben", "--name", "Arc", "--slerp").exit_code == 0
    half = np.sqrt(0.5)
    np.testing.assert_allclose(load_file(file_of(folder, "Arc"))["speaker_embedding"], [half, 3 * half], rtol=1e-6)
    assert json.loads((folder / MANIFEST).read_text())["voices"].keys() == {"anna", "ben", "Anben", "Arc"}


def test_what_cannot_be_blended_is_said_in_a_line(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "voices", anna=[1, 0], ben=[0, 3], big=[1, 2, 3])
    assert "no voice 'carl'; it has: anna, ben, big" in refused("blend", folder, "anna", "carl", "--name", "x")
    assert "has a voice 'BEN' already" in refused("blend", folder, "anna", "ben", "--name", "BEN")
    assert "different sizes: 2 and 3" in refused("blend", folder, "anna", "big", "--name", "x")
    assert "must not look like a path" in refused("blend", folder, "anna", "ben", "--name", "../x")
    file_of(folder, "ben").write_bytes(b"")
    assert "holds no speaker_embedding" in refused("blend", folder, "anna", "ben", "--name", "x")
    (folder / MANIFEST).write_text("[]")
    assert "cannot be read as a manifest" in refused("blend", folder, "anna", "ben", "--name", "x")
