"""Whether a checkpoint that clones voices holds a speaker encoder that fits, found out without reading its tensors."""

from pathlib import Path

from speechmill.models.common.checkpoint import Inspection
from speechmill.models.common.folder import find_source, finding_faults
from speechmill.models.qwen3_tts.speaker.config import read_config
from speechmill.models.qwen3_tts.speaker.encoder import SpeakerEncoder


@finding_faults
def check(folder: Path) -> list[str]:
    """What is wrong with the speaker encoder in `folder`, a line for each finding; empty where nothing is."""
    config, inspection = read_config(folder), Inspection(find_source(folder))
    SpeakerEncoder(inspection, config)
    return inspection.findings
