"""Voices computed beforehand, from folders and from S3, and the files that they come in."""

import contextlib
import json
import logging
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

from speechmill.infra.embedded import EmbeddedS3
from speechmill.infra.errors import ConfigError
from speechmill.infra.objects import ObjectStore
from speechmill.infra.precomputed import MANIFEST, PrecomputedVoice, read_precomputed
from speechmill.infra.tensors import BadTensors, read_tensors

WIDTHS = {"qwen3_tts": frozenset({8, 4}), "voxcpm2": frozenset({0})}
SPEAKER = np.linspace(-1, 1, 8, dtype=np.float32)
CODES = np.ones((5, 16), np.int64)
PATCHES = np.ones((3, 4, 64), np.float32)


@pytest.fixture
def objects(s3: EmbeddedS3) -> ObjectStore:
    return ObjectStore(s3.bucket, s3.endpoint_url, s3.access_key, s3.secret_key)


def write(folder: Path, model_type: str, voices: dict[str, Any], version: int = 1) -> str:
    folder.mkdir(exist_ok=True)
    manifest = {"schema_version": version, "model_type": model_type, "voices": voices}
    (folder / MANIFEST).write_text(json.dumps(manifest))
    return str(folder)


def payload(folder: Path, name: str, **tensors: Any) -> str:
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(save({key: np.asarray(value) for key, value in tensors.items()}))
    return name


def names(voices: tuple[PrecomputedVoice, ...]) -> list[str]:
    return [voice.name for voice in voices]


def test_good_voices_of_a_folder_are_copied_to_where_every_worker_finds_them(
    tmp_path: Path, objects: ObjectStore
) -> None:
    in_context = payload(tmp_path, "a", speaker_embedding=SPEAKER, ref_code=CODES)
    voices = {
        "alice": {"file": in_context, "mode": "icl", "ref_text": "Hi."},
        "Ann": {"file": payload(tmp_path, "c", speaker_embedding=SPEAKER, ref_code=CODES[:, :5])},
        "Bob": {"file": payload(tmp_path, "b", speaker_embedding=SPEAKER[None, :4]), "mode": "xvec"},
    }
    source = write(tmp_path, "qwen3_tts", voices)
    alice, ann, bob = read_precomputed([source], WIDTHS, objects)
    assert (alice.name, alice.mode, alice.ref_text, alice.dim) == ("alice", "icl", "Hi.", 8)
    assert (ann.name, ann.mode, ann.dim) == ("Ann", "icl", 8)
    assert (bob.name, bob.mode, bob.ref_text, bob.dim) == ("Bob", "xvec", "", 4)
    assert b"".join(objects.get(alice.payload_key)) == (tmp_path / "a").read_bytes()
    assert read_precomputed([source], WIDTHS, objects) == (alice, ann, bob)


def test_a_prefix_in_s3_is_read_like_a_folder(tmp_path: Path, objects: ObjectStore, prefix: str) -> None:
    file = payload(tmp_path, "a.safetensors", ref_audio_feat=PATCHES)
    write(tmp_path, "voxcpm2", {"ann": {"file": file, "prompt_text": "Hello, "}, "gone": {"file": "none"}})
    folder = f"{prefix}/deep"
    for name in (file, MANIFEST):
        objects.put_once(f"{folder}/{name}", (tmp_path / name).read_bytes(), "application/octet-stream")
    (ann,) = read_precomputed([f"s3://{objects.bucket}/{folder}"], WIDTHS, objects)
    assert (ann.name, ann.mode, ann.ref_text, ann.dim) == ("ann", "reference", "Hello,", 0)


def test_without_a_mode_the_tensors_decide(tmp_path: Path, objects: ObjectStore) -> None:
    voices = {
        "both": {"file": payload(tmp_path, "1", ref_audio_feat=PATCHES, audio_feat=PATCHES)},
        "next": {"file": payload(tmp_path, "2", audio_feat=PATCHES)},
    }
    found = read_precomputed([write(tmp_path, "voxcpm2", voices)], WIDTHS, objects)
    assert [(voice.name, voice.mode) for voice in found] == [("both", "ref_continuation"), ("next", "continuation")]


BAD_ENTRIES = {
    "no file": {},
    "not a table": "alice.safetensors",
    "mode that its family lacks": {"file": "icl", "mode": "reference"},
    "mode without its tensors": {"file": "xvec", "mode": "icl"},
    "other width": {"file": "wide"},
    "no codes": {"file": "no codes"},
    "no frames of codes": {"file": "flat"},
    "codes below zero": {"file": "negative"},
    "codes that are no integers": {"file": "fractions"},
    "not finite": {"file": "infinite"},
    "no tensors": {"file": "nothing"},
    "garbage": {"file": "garbage"},
    "outside": {"file": "../outside"},
    "link to outside": {"file": "link"},
    "absolute": {"file": "/etc/hostname"},
    "not there": {"file": "missing"},
    "a name that no file can have": {"file": "a\0b"},
    "a name that cannot be written": {"file": "\ud800"},
    "links in a circle": {"file": "circle"},
    "a pipe": {"file": "pipe"},
    "minutes of codes": {"file": "long"},
    "beyond float32": {"file": "huge"},
    "words that are no text": {"file": "icl", "ref_text": 5},
    "words with half a character": {"file": "icl", "ref_text": "a\ud800b"},
    "too many words": {"file": "icl", "ref_text": "word " * 500},
    "\ud800x": {"file": "icl"},
    "too/deep": {"file": "icl"},
    "": {"file": "icl"},
}


def test_bad_voices_are_skipped_with_a_line_each_in_the_log_and_the_others_stay(
    tmp_path: Path, objects: ObjectStore, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "voices"
    payload(folder, "icl", speaker_embedding=SPEAKER, ref_code=CODES)
    payload(folder, "xvec", speaker_embedding=SPEAKER)
    payload(folder, "wide", speaker_embedding=np.ones(9, np.float32))
    payload(folder, "no codes", speaker_embedding=SPEAKER, ref_code=CODES[:0])
    payload(folder, "flat", speaker_embedding=SPEAKER, ref_code=CODES[:, 0])
    payload(folder, "negative", speaker_embedding=SPEAKER, ref_code=-CODES)
    payload(folder, "fractions", speaker_embedding=SPEAKER, ref_code=CODES.astype(np.float32))
    payload(folder, "infinite", speaker_embedding=np.full(8, np.inf, np.float32))
    payload(folder, "nothing")
    payload(folder, "long", speaker_embedding=SPEAKER, ref_code=np.ones((2000, 16), np.int64))
    payload(folder, "huge", speaker_embedding=np.full(8, 1e300))
    os.symlink(folder / "circle", folder / "circle")
    os.mkfifo(folder / "pipe")
    (folder / "garbage").write_bytes(b"certainly no tensors")
    payload(tmp_path, "outside", speaker_embedding=SPEAKER)
    os.symlink(tmp_path / "outside", folder / "link")
    source = write(folder, "qwen3_tts", {**BAD_ENTRIES, "good": {"file": "icl"}})
    with caplog.at_level(logging.WARNING):
        assert names(read_precomputed([source], WIDTHS, objects)) == ["good"]
    lines = {line.voice: line.error for line in caplog.records}
    assert set(lines) == set(BAD_ENTRIES)
    assert "outside" in lines["outside"]
    assert "outside" in lines["link to outside"]


def test_voices_that_nobody_can_ask_for_are_left_out_and_said_to_be(
    tmp_path: Path, objects: ObjectStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Those of families that are not served, and the second of a name."""

    def folder(name: str, family: str, voice: str, **tensors: Any) -> str:
        return write(tmp_path / name, family, {voice: {"file": payload(tmp_path / name, "a", **tensors)}})

    other = folder("other", "voxcpm2", "ann", audio_feat=PATCHES)
    voices = [folder(name, "qwen3_tts", "Anna", speaker_embedding=SPEAKER) for name in ("first", "second")]
    with caplog.at_level(logging.WARNING):
        (anna,) = read_precomputed([other, *voices], {"qwen3_tts": frozenset({8})}, objects)
    assert anna.name == "Anna"
    assert [(line.voice, line.source) for line in caplog.records] == [("*", other), ("Anna", voices[1])]


@pytest.mark.parametrize(
    "manifest",
    ["", "[]", '{"schema_version":2,"model_type":"voxcpm2","voices":{}}', '{"schema_version":1,"voices":{}}'],
)
def test_a_manifest_that_cannot_be_read_is_a_fault_of_the_settings(
    manifest: str, tmp_path: Path, objects: ObjectStore
) -> None:
    (tmp_path / MANIFEST).write_text(manifest)
    with pytest.raises(ConfigError, match=r"voices\.precomputed"):
        read_precomputed([str(tmp_path)], WIDTHS, objects)
    with pytest.raises(ConfigError, match=r"voices\.precomputed"):
        read_precomputed([f"s3://{objects.bucket}/nowhere"], WIDTHS, objects)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int64, np.int32, np.int8, np.uint8])
def test_tensors_are_read_as_the_safetensors_package_writes_them(dtype: type) -> None:
    written = {"a": np.arange(6, dtype=dtype).reshape(2, 3), "b": np.array(7, dtype)}
    read = read_tensors(save(written, {"format": "np"}))
    assert set(read) == {"a", "b"}
    for name, values in written.items():
        assert read[name].shape == values.shape
        assert np.array_equal(read[name], values)


def test_bfloat16_is_read_as_float32() -> None:
    header = b'{"a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}'
    data = len(header).to_bytes(8, "little") + header + b"\x80\x3f\x20\xc0"
    assert read_tensors(data)["a"].tolist() == [1.0, -2.5]


NUMBERS = st.integers(-2, 1 << 70) | st.floats() | st.none() | st.booleans()


@given(
    st.dictionaries(
        st.text(max_size=3),
        st.fixed_dictionaries(
            {
                "dtype": st.sampled_from(["F32", "BF16", "I8", "X", 3]),
                "shape": st.lists(NUMBERS, max_size=70) | st.none(),
                "data_offsets": st.lists(NUMBERS, max_size=3),
            }
        )
        | st.none(),
        max_size=3,
    ),
    st.binary(max_size=16),
)
def test_a_header_that_lies_is_refused_and_nothing_else_happens(header: dict[str, Any], body: bytes) -> None:
    text = json.dumps(header).encode()
    try:
        tensors = read_tensors(len(text).to_bytes(8, "little") + text + body)
    except BadTensors:
        return
    assert sum(values.nbytes for values in tensors.values()) <= 2 * len(body) * max(len(tensors), 1)


@given(st.binary(max_size=64))
def test_bytes_that_are_no_tensors_are_refused(data: bytes) -> None:
    with contextlib.suppress(BadTensors):
        assert read_tensors(data) == {}
