"""`speechmill voices precompute`: what a model derives from recordings, kept as a folder of voices."""

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from speechmill.infra.errors import BadInput

if TYPE_CHECKING:
    from speechmill.models.card import ModelCard

Derive = Callable[[Path, bytes], bytes]
"""From a recording, whose name is for errors, to a safetensors file."""


def precompute(
    recordings: Sequence[Path], model: str, out: Path, mode: str, ref_text: str, device: str
) -> dict[str, Path]:
    """A voice of each recording, named as its file is; answers the voices' files by their names.

    The words of a recording are `ref_text`, or stand in a text file beside it. Raises BadInput in one line.
    """
    from speechmill.infra.precomputed_folder import add_voice

    card, checkpoint = _model(model)
    assert card.encode is not None
    mode = mode or card.encode.modes[0]
    if mode not in card.encode.modes:
        raise BadInput(f"{card.id} has no mode {mode!r}; it has: {', '.join(card.encode.modes)}")
    if len({path.stem for path in recordings}) < len(recordings):
        raise BadInput("two of the recordings have one name, and would be one voice")
    if ref_text and len(recordings) > 1:
        raise BadInput("--ref-text holds for one recording; put a text file beside each of several")
    words = {path: ref_text or _words_beside(path) for path in recordings}
    if mode == "icl" and (silent := [path.name for path in recordings if not words[path]]):
        raise BadInput(f"mode icl needs what is said in {silent[0]}: give --ref-text, or a text file beside it")
    clips = {path: _clip(path) for path in recordings}
    derive = _deriver(card, checkpoint, mode, device)
    return {
        path.stem: add_voice(out, card.family, path.stem, mode, words[path], derive(path, clips[path]))
        for path in recordings
    }


def _model(named: str) -> "tuple[ModelCard, Path]":
    from speechmill.models.checkpoints import find_checkpoint, folder_named, recognise
    from speechmill.models.registry import require, served

    try:
        folder = folder_named(named)
        (card,) = served([recognise(folder) if folder else named])
        checkpoint = folder or find_checkpoint(card.id, {})
        require(card, checkpoint)
    except LookupError as error:
        raise BadInput(str(error)) from None
    if "precomputed" not in card.parameters.voice_kinds or card.encode is None or checkpoint is None:
        raise BadInput(f"{card.id} takes no precomputed voices")
    return card, checkpoint


def _words_beside(recording: Path) -> str:
    beside = recording.with_suffix(".txt")
    try:
        return beside.read_text(encoding="utf-8").strip() if beside.is_file() else ""
    except (OSError, ValueError):
        raise BadInput(f"{beside} cannot be read as UTF-8 text") from None


def _clip(recording: Path) -> bytes:
    """As a farm would hand it to the model, which refuses the same ones."""
    from speechmill.api.errors import ApiError
    from speechmill.api.references.decode import decode_clip
    from speechmill.configs.settings import load

    try:
        return asyncio.run(decode_clip(recording.read_bytes(), load(), str(recording))).wav()
    except ApiError as error:
        raise BadInput(str(error)) from None


def _deriver(card: "ModelCard", checkpoint: Path, mode: str, device: str) -> Derive:
    """The model's own `encode`, in this process."""
    from speechmill.models.registry import load_stage
    from speechmill.models.stage import CannotLoad, NoDevice, Resume, SlotFailed, StageOptions, StageTask

    options = StageOptions(slots=1, device=device, threads=os.cpu_count() or 1, checkpoint=checkpoint)
    try:
        stage = load_stage(card, "encode", options)
    except NoDevice as error:
        raise BadInput(f"{error}; --device cpu does without") from None
    except CannotLoad as error:
        raise BadInput(str(error)) from None

    def derive(recording: Path, clip: bytes) -> bytes:
        task = StageTask("precompute", 1, 0, "", "", 0, {"mode": mode}, {"clip": clip})
        try:
            stage.open(0, task, Resume())
            made = stage.step([0])
            while not made:
                made = stage.step([0])
        except SlotFailed as error:
            raise BadInput(f"{recording}: {error}") from None
        stage.close(0)
        return made[0].payload

    return derive
