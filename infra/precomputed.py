"""Voices whose features were derived beforehand: a folder or S3 prefix with a manifest and one file for each voice.

They are read and checked once, when an API process starts, and copied into the farm's own bucket, where any worker
finds them (speech_api §3.4). `precomputed_folder.py` writes such folders.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from speechmill.infra.errors import ConfigError
from speechmill.infra.objects import ObjectMissing, ObjectStore
from speechmill.infra.segments import clean
from speechmill.infra.tensors import BadTensors, read_tensors
from speechmill.infra.voices import fold, name_fault

log = logging.getLogger(__name__)
SKIPPED = "precomputed voice skipped"
"""Event of the log, with `voice`, `source` and `error`."""
MANIFEST = "custom_voice_manifest.json"
SCHEMA = 1
_MOST_BYTES = 16 << 20
"""Of a manifest or payload; thirty seconds of features take less than one MiB."""
_MOST_WORDS = 2000
_MOST_FRAMES = 1024
"""Of a reference: more than half a minute of any family."""
_S3 = "s3://"
_SHAPES: dict[str, tuple[str, tuple[int, ...]]] = {
    "ref_code": ("iu", (0,)),
    "ref_audio_feat": ("f", (4, 64)),
    "audio_feat": ("f", (4, 64)),
}
"""Kind of number and shape of one frame, by tensor; 0 for as many as the model has codebooks. `speaker_embedding` is as
wide as the model asks.
"""
_MODES: dict[str, dict[str, tuple[str, ...]]] = {
    "qwen3_tts": {"icl": ("speaker_embedding", "ref_code"), "xvec": ("speaker_embedding",)},
    "voxcpm2": {
        "ref_continuation": ("ref_audio_feat", "audio_feat"),
        "reference": ("ref_audio_feat",),
        "continuation": ("audio_feat",),
    },
}
"""Tensors that each family needs in each mode; a voice without a mode has the first that its tensors allow."""


@dataclass(frozen=True, slots=True)
class PrecomputedVoice:
    """One voice of a manifest, checked."""

    name: str
    family: str
    mode: str
    ref_text: str
    payload_key: str
    """Object with the safetensors file; the key stands for its content."""
    dim: int = 0
    """Of its speaker embedding; 0 where the family has none. Only models of the same width can use it."""
    frames: int = 0
    """Of the recording that a model hears, if it hears one."""


class _Refused(Exception):
    """Why a voice is skipped."""


Read = Callable[[str], bytes]
"""A file of one source, by its name."""


def read_precomputed(
    sources: Iterable[str], widths: Mapping[str, frozenset[int]], objects: ObjectStore
) -> tuple[PrecomputedVoice, ...]:
    """All good voices of the folders and `s3://bucket/prefix`es, for families that are served.

    `widths`: served families, with the speaker embeddings that their models take. A bad voice is skipped with a line
    in the log. Raises ConfigError for a manifest that cannot be read, StoreUnavailable. Blocks.
    """
    found: dict[tuple[str, str, int], PrecomputedVoice] = {}
    for source in sources:
        for voice in _read_source(source, widths, objects):
            if found.setdefault((fold(voice.name), voice.family, voice.dim), voice) is not voice:
                _skip(voice.name, source, "there is a voice of that name already")
    return tuple(found[key] for key in sorted(found))


def _read_source(source: str, widths: Mapping[str, frozenset[int]], objects: ObjectStore) -> list[PrecomputedVoice]:
    read = _bucket_reader(source, objects) if source.startswith(_S3) else _folder_reader(Path(source))
    family, entries = _manifest(source, read)
    if family not in widths:
        _skip("*", source, f"no model that is served speaks with precomputed voices of {family}")
        return []
    voices = []
    for name, entry in entries.items():
        try:
            voices.append(_voice(name, entry, family, widths[family], read, objects))
        except (_Refused, BadTensors) as error:
            _skip(name, source, str(error))
    return voices


def _skip(voice: str, source: str, why: str) -> None:
    log.warning(SKIPPED, extra={"voice": voice, "source": source, "error": why})


def _folder_reader(folder: Path) -> Read:
    root = folder.resolve()

    def read(name: str) -> bytes:
        try:
            path = (root / name).resolve()
            if not path.is_relative_to(root):
                raise _Refused("its file lies outside of the folder")
            if not path.is_file():
                raise _Refused("its file is not there")
            with path.open("rb") as file:
                return _bounded(file.read(_MOST_BYTES + 1))
        except (OSError, ValueError, RuntimeError):  # of names that no file can have, and of links in a circle
            raise _Refused("its file cannot be read") from None

    return read


def _bucket_reader(source: str, objects: ObjectStore) -> Read:
    bucket, _, prefix = source.removeprefix(_S3).partition("/")
    store = replace(objects, bucket=bucket)
    folder = f"{prefix.strip('/')}/" if prefix.strip("/") else ""

    def read(name: str) -> bytes:
        if ".." in name.split("/") or name.startswith("/"):
            raise _Refused("its file lies outside of the prefix")
        try:
            return _bounded(store.read_range(folder + name, 0, _MOST_BYTES + 1))
        except ObjectMissing:
            raise _Refused("its file is not there") from None

    return read


def _bounded(data: bytes) -> bytes:
    if len(data) > _MOST_BYTES:
        raise _Refused(f"its file is larger than {_MOST_BYTES} bytes")
    return data


def _manifest(source: str, read: Read) -> tuple[str, dict[str, Any]]:
    try:
        manifest = json.loads(read(MANIFEST))
    except (_Refused, ValueError, RecursionError) as error:
        raise ConfigError(f"voices.precomputed: {source} has no {MANIFEST} that can be read") from error
    if not isinstance(manifest, dict) or manifest.get("schema_version") != SCHEMA:
        raise ConfigError(f"voices.precomputed: {MANIFEST} of {source} is not of schema_version {SCHEMA}")
    family, voices = manifest.get("model_type"), manifest.get("voices")
    if not isinstance(family, str) or family not in _MODES or not isinstance(voices, dict):
        raise ConfigError(f"voices.precomputed: {MANIFEST} of {source} needs voices, for one of {', '.join(_MODES)}")
    return family, voices


def _voice(
    name: str, entry: Any, family: str, widths: frozenset[int], read: Read, objects: ObjectStore
) -> PrecomputedVoice:
    if fault := name_fault(name.strip()):
        raise _Refused(f"its name {fault}")
    if not isinstance(entry, dict) or not isinstance(entry.get("file"), str):
        raise _Refused("it names no file")
    ref_text = entry.get("ref_text", entry.get("prompt_text")) or ""
    if not isinstance(ref_text, str) or len(ref_text) > _MOST_WORDS or ref_text != clean(ref_text):
        raise _Refused(f"its ref_text is no text of at most {_MOST_WORDS} characters")
    payload = read(entry["file"])
    tensors = read_tensors(payload)
    mode = _mode(entry.get("mode"), family, tensors)
    for tensor in _MODES[family][mode]:
        _check(tensor, tensors[tensor], widths)
    key = f"precomputed/{hashlib.sha256(payload).hexdigest()}.safetensors"
    objects.put_once(key, payload, "application/octet-stream")
    needed = _MODES[family][mode]
    dim = tensors["speaker_embedding"].size if "speaker_embedding" in needed else 0
    frames = max((len(tensors[tensor]) for tensor in needed if tensor in _SHAPES), default=0)
    return PrecomputedVoice(name.strip(), family, mode, ref_text.strip(), key, dim, frames)


def _mode(given: Any, family: str, tensors: Mapping[str, NDArray[Any]]) -> str:
    possible = [mode for mode, needed in _MODES[family].items() if set(needed) <= set(tensors)]
    if given is None and possible:
        return possible[0]
    if given not in possible:
        raise _Refused("its tensors do not make a voice of its mode")
    return str(given)


def _check(name: str, values: NDArray[Any], widths: frozenset[int]) -> None:
    kind, frame = _SHAPES.get(name, ("f", ()))
    if values.dtype.kind not in kind or not values.size:
        raise _Refused(f"{name} is empty or holds the wrong kind of numbers")
    if name == "speaker_embedding":
        if values.size not in widths:
            raise _Refused(f"{name} has {values.size} values, which no served model takes")
    elif values.ndim != len(frame) + 1 or (any(frame) and values.shape[1:] != frame):
        raise _Refused(f"{name} has the shape {list(values.shape)}")
    elif len(values) > _MOST_FRAMES:
        raise _Refused(f"{name} has {len(values)} frames, more than a reference of half a minute")
    if not (np.abs(values) <= np.finfo(np.float32).max).all() or (kind == "iu" and values.min() < 0):
        raise _Refused(f"{name} holds values that cannot be")
