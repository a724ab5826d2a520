"""How a checkpoint's codes are drawn, as its `generation_config.json` says."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speechmill.models.common.config import count, flag, positive, read_json, whole

_UNSAID: Mapping[str, Any] = {
    "temperature": 0.9,
    "top_p": 1.0,
    "top_k": 50,
    "subtalker_temperature": 0.9,
    "subtalker_top_p": 1.0,
    "subtalker_top_k": 50,
    "repetition_penalty": 1.05,
    "max_new_tokens": 2048,
}


@dataclass(frozen=True, slots=True)
class Sampling:
    """Settings for the first code of a frame, and (`sub`) for the others."""

    temperature: float
    top_p: float
    top_k: int
    """0 for no limit."""
    repetition_penalty: float
    sub_temperature: float
    sub_top_p: float
    sub_top_k: int
    max_new_tokens: int


def read_sampling(folder: Path) -> Sampling:
    """Raises CheckpointError in one line that names the file and the field. A folder may have no such file."""
    path = folder / "generation_config.json"
    return read_json(path, _sampling) if path.exists() else _sampling({})


def _sampling(config: Mapping[str, Any]) -> Sampling:
    """What is not said is as in upstream's own code."""
    said = {**_UNSAID, **{name: value for name, value in config.items() if value is not None}}
    temperature, top_p, top_k = _drawn(said, "", flag(config, "do_sample", True))
    sub_temperature, sub_top_p, sub_top_k = _drawn(said, "subtalker_", flag(config, "subtalker_dosample", True))
    return Sampling(
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        repetition_penalty=positive(said, "repetition_penalty"),
        sub_temperature=sub_temperature,
        sub_top_p=sub_top_p,
        sub_top_k=sub_top_k,
        max_new_tokens=count(said, "max_new_tokens"),
    )


def _drawn(said: Mapping[str, Any], prefix: str, sampled: bool) -> tuple[float, float, int]:
    """Temperature, top_p and top_k. Without sampling the likeliest code is taken, whatever else is said."""
    if not sampled:
        return _UNSAID["temperature"], _UNSAID["top_p"], 1
    return (
        positive(said, f"{prefix}temperature"),
        positive(said, f"{prefix}top_p"),
        whole(said, f"{prefix}top_k"),
    )
