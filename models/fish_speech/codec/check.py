"""Whether a folder holds a codec that fits, found out without reading its tensors."""

from pathlib import Path

from speechmill.models.common.checkpoint import Inspection
from speechmill.models.fish_speech.codec.config import read_config
from speechmill.models.fish_speech.codec.decoder import Decoder
from speechmill.models.fish_speech.codec.encoder import Encoder
from speechmill.models.fish_speech.codec.weights import open_source, rename
from speechmill.models.stage import CheckpointError


def check(folder: Path) -> list[str]:
    """What is wrong with the codec in `folder`, a line for each finding; empty where nothing is."""
    try:
        config, source = read_config(folder), open_source(folder)
    except CheckpointError as error:
        return [str(error)]
    inspection = Inspection(source, rename)
    Decoder(inspection, config)
    Encoder(inspection, config)
    return list(dict.fromkeys(inspection.findings))  # the codebooks are asked for twice
