"""What `config.json` of a checkpoint says of its speaker encoder."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speechmill.models.common.config import count, counts, read_json
from speechmill.models.qwen3_tts.defaults import speaker_of, talker_of


@dataclass(frozen=True, slots=True)
class SpeakerConfig:
    """Lists have an entry for each block; the last one is of the layer that merges them."""

    sample_rate: int
    width: int
    """Of the vector."""
    bands: int
    channels: tuple[int, ...]
    kernels: tuple[int, ...]
    dilations: tuple[int, ...]
    attention: int
    scale: int
    squeezed: int


def read_config(folder: Path) -> SpeakerConfig:
    """Raises CheckpointError in one line that names the file and the field, also where there is no such encoder."""
    return read_json(folder / "config.json", _speaker)


def _speaker(checkpoint: Mapping[str, Any]) -> SpeakerConfig:
    config = speaker_of(checkpoint)
    width, taken = count(config, "enc_dim"), count(talker_of(checkpoint), "hidden_size")
    if width != taken:
        raise ValueError(f"enc_dim is {width}, but the talker takes vectors of {taken}")
    channels, kernels = counts(config, "enc_channels"), counts(config, "enc_kernel_sizes")
    dilations, scale = counts(config, "enc_dilations"), count(config, "enc_res2net_scale")
    if not 3 <= len(channels) == len(kernels) == len(dilations):
        raise ValueError("enc_channels, enc_kernel_sizes and enc_dilations need as many entries, three at least")
    if any(width % scale for width in channels[1:-1]):
        raise ValueError("enc_channels are no multiples of enc_res2net_scale")
    return SpeakerConfig(
        sample_rate=count(config, "sample_rate"),
        width=width,
        bands=count(config, "mel_dim"),
        channels=channels,
        kernels=kernels,
        dilations=dilations,
        attention=count(config, "enc_attention_channels"),
        scale=scale,
        squeezed=count(config, "enc_se_channels"),
    )
