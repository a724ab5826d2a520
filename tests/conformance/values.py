"""Builds what a case sends: variables and the one-key objects of the case format, such as `{"$wav": {…}}`."""

import base64
import io
import json
import re
from collections.abc import Callable, Mapping
from typing import Any
from uuid import uuid4

import numpy as np
import soundfile

Variables = dict[str, Any]
_NAME = re.compile(r"\{\{(\w+)\}\}")
_MEDIA_TYPES = {"wav": "audio/wav", "flac": "audio/flac", "mp3": "audio/mpeg", "ogg": "audio/ogg"}
_SUBTYPES = {"wav": "PCM_16", "flac": "PCM_16", "mp3": "MPEG_LAYER_III", "ogg": "VORBIS"}


def build(value: Any, variables: Variables) -> Any:
    """The value with its variables filled in and its builders run; matchers pass unchanged. KeyError: no variable."""
    if isinstance(value, str):
        return _filled(value, variables)
    if isinstance(value, list):
        return [build(item, variables) for item in value]
    if not isinstance(value, Mapping):
        return value
    built = {key: build(item, variables) for key, item in value.items()}
    if len(built) == 1 and (name := next(iter(built))) in _BUILDERS:
        return _BUILDERS[name](built[name])
    return built


def as_bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()


def _filled(text: str, variables: Variables) -> Any:
    """A variable that stands alone keeps its type."""
    if alone := _NAME.fullmatch(text):
        return variables[alone[1]]
    return _NAME.sub(lambda found: str(variables[found[1]]), text)


def wav(
    seconds: float,
    rate: int = 16_000,
    hz: float = 220.0,
    channels: int = 1,
    container: str = "wav",
    subtype: str = "",
    streaming_sizes: bool = False,
    **form: str,
) -> str | bytes:
    """A tone of amplitude 0.3 with a slow swell, as the bytes of a file or what `as` says."""
    at = np.arange(round(seconds * rate)) / rate
    tone = 0.3 * np.sin(2 * np.pi * hz * at) * (0.75 + 0.25 * np.sin(2 * np.pi * 2 * at))
    file = io.BytesIO()
    frames = np.repeat(tone[:, None], channels, axis=1)
    soundfile.write(file, frames, rate, subtype or _SUBTYPES[container], format=container.upper())
    data = _endless(file.getvalue()) if streaming_sizes else file.getvalue()
    if form.get("as", "bytes") == "bytes":
        return data
    text = base64.b64encode(data).decode()
    return text if form["as"] == "base64" else f"data:{_MEDIA_TYPES[container]};base64,{text}"


def _endless(data: bytes) -> bytes:
    """The WAV file with the sizes of a stream."""
    at = data.index(b"data") + 4
    unknown = b"\xff" * 4
    return data[:4] + unknown + data[8:at] + unknown + data[at + 4 :]


def _bytes(content: str | int) -> bytes:
    return bytes(content) if isinstance(content, int) else content.encode()


def _join(parts: list[str | bytes]) -> str | bytes:
    if any(isinstance(part, bytes) for part in parts):
        return b"".join(map(as_bytes, parts))
    return "".join(str(part) for part in parts)


def _jsonl(lines: list[Any]) -> str:
    return "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)


def _nest(depth: int) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for _ in range(depth - 1):
        nested = {"a": nested}
    return nested


_BUILDERS: dict[str, Callable[[Any], Any]] = {
    "$wav": lambda options: wav(**options),
    "$repeat": lambda options: options["text"] * options["times"],
    "$list": lambda options: [options["value"]] * options["times"],
    "$bytes": _bytes,
    "$b64": lambda text: base64.b64encode(as_bytes(text)).decode(),
    "$join": _join,
    "$jsonl": _jsonl,
    "$json_text": lambda value: json.dumps(value),
    "$nest": _nest,
    "$uuid": lambda prefix: f"{prefix}{uuid4().hex}",
}
