"""Writing a folder of precomputed voices, in the layout that vLLM-Omni loads as well (qwen3_tts.md §8.2).

A file has a name by its content and stands before the manifest names it: whoever reads the folder at any moment finds
whole voices.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from speechmill.infra.errors import BadInput
from speechmill.infra.precomputed import MANIFEST, SCHEMA
from speechmill.infra.tensors import BadTensors, read_tensors
from speechmill.infra.voices import fold, name_fault

EMBEDDING = "speaker_embedding"


def add_voice(folder: Path, family: str, name: str, mode: str, ref_text: str, payload: bytes) -> Path:
    """Write or replace a voice; answers its file. `payload`: safetensors as the family's `encode` makes them.

    Raises BadInput for a name that no voice can have, and for a folder that cannot be written or is another family's.
    """
    if fault := name_fault(name):
        raise BadInput(f"{name!r} cannot name a voice: it {fault}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        manifest = _read(folder, family)
        file = folder / f"{name}-{hashlib.sha256(payload).hexdigest()[:8]}.safetensors"
        _write(file, payload)
        voices = {other: entry for other, entry in manifest["voices"].items() if fold(other) != fold(name)}
        voices[name] = {"name": name, "file": file.name, "mode": mode, "ref_text": ref_text}
        told = json.dumps({**manifest, "voices": voices}, ensure_ascii=False, indent=2)
        _write(folder / MANIFEST, told.encode())
        for replaced in _files(manifest["voices"]) - _files(voices):
            (folder / replaced).unlink(missing_ok=True)
    except OSError as error:
        raise BadInput(f"{error.filename}: {error.strerror}") from None
    return file


def has_voice(folder: Path, family: str, name: str) -> bool:
    """Raises BadInput for a folder of another family."""
    return fold(name) in {fold(other) for other in _read(folder, family)["voices"]}


def speaker_of(folder: Path, family: str, name: str) -> NDArray[np.float32]:
    """The speaker embedding [width] of a voice of the folder. Raises BadInput."""
    voices = {fold(other): entry for other, entry in _read(folder, family)["voices"].items()}
    entry = voices.get(fold(name))
    if entry is None:
        known = ", ".join(sorted(voices)) or "none"
        raise BadInput(f"{folder} has no voice {name!r}; it has: {known}")
    try:
        vector = read_tensors((folder / Path(str(entry["file"])).name).read_bytes())[EMBEDDING]
    except (OSError, KeyError, TypeError, BadTensors):
        raise BadInput(f"the file of voice {name!r} in {folder} holds no {EMBEDDING}") from None
    return np.asarray(vector, np.float32).ravel()


def _read(folder: Path, family: str) -> dict[str, Any]:
    """The manifest, an empty one where there is none."""
    path = folder / MANIFEST
    if not path.exists():
        return {"schema_version": SCHEMA, "model_type": family, "voices": {}}
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        kind, voices = manifest["model_type"], manifest["voices"]
    except (OSError, ValueError, KeyError, TypeError):
        raise BadInput(f"{path} cannot be read as a manifest of voices") from None
    if kind != family or manifest.get("schema_version") != SCHEMA or not isinstance(voices, dict):
        raise BadInput(f"{path} is no manifest of {family} voices with schema_version {SCHEMA}")
    return {**manifest, "voices": voices}


def _files(voices: Mapping[str, Any]) -> set[str]:
    return {Path(str(entry["file"])).name for entry in voices.values() if isinstance(entry, dict) and "file" in entry}


def _write(path: Path, content: bytes) -> None:
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_bytes(content)
    fresh.replace(path)
