"""How a checkpoint's codes are drawn, as its `generation_config.json` says."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speechmill.models.common.config import count, flag, positive
from speechmill.models.common.folder import read_json


@dataclass(frozen=True, slots=True)
class Sampling:
    """Settings for the first code of a frame, and (`sub`) for the others."""

    temperature: float
    top_p: float
    top_k: int
    repetition_penalty: float
    sub_temperature: float
    sub_top_p: float
    sub_top_k: int
    max_new_tokens: int


def read_sampling(folder: Path) -> Sampling:
    """Raises CheckpointError in one line that names the file and the field."""
    return read_json(folder / "generation_config.json", _sampling)


def _sampling(config: Mapping[str, Any]) -> Sampling:
    """What is not said is as in upstream's own code. Without sampling the likeliest code is taken."""
    sampled, sub_sampled = flag(config, "do_sample", True), flag(config, "subtalker_dosample", True)
    values = {"temperature": 0.9, "top_p": 1.0, "top_k": 50, "repetition_penalty": 1.05, "max_new_tokens": 2048}
    values |= {f"subtalker_{name}": values[name] for name in ("temperature", "top_p", "top_k")}
    said = {**values, **{name: value for name, value in config.items() if value is not None}}
    return Sampling(
        temperature=positive(said, "temperature"),
        top_p=positive(said, "top_p"),
        top_k=count(said, "top_k") if sampled else 1,
        repetition_penalty=positive(said, "repetition_penalty"),
        sub_temperature=positive(said, "subtalker_temperature"),
        sub_top_p=positive(said, "subtalker_top_p"),
        sub_top_k=count(said, "subtalker_top_k") if sub_sampled else 1,
        max_new_tokens=count(said, "max_new_tokens"),
    )
