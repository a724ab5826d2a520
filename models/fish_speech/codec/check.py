"""Whether a folder holds a codec that fits, found out without reading its tensors."""

from pathlib import Path

from speechmill.models.common.checkpoint import Inspection
from speechmill.models.common.folder import finding_faults
from speechmill.models.fish_speech.codec.config import read_config
from speechmill.models.fish_speech.codec.decoder import Decoder
from speechmill.models.fish_speech.codec.encoder import Encoder
from speechmill.models.fish_speech.codec.weights import open_source, rename


@finding_faults
def check(folder: Path) -> list[str]:
    """What is wrong with the codec in `folder`, a line for each finding; empty where nothing is."""
    config, inspection = read_config(folder), Inspection(open_source(folder), rename)
    Decoder(inspection, config)
    Encoder(inspection, config)
    return list(dict.fromkeys(inspection.findings))  # the codebooks are asked for twice
