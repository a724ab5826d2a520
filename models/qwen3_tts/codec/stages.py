"""The codec's two stages: `codec` (codes → s16le at 24 kHz) and `encode` (a recording → how it sounds, and codes)."""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from speechmill.models.common.codec.encoding import EncodeStage, Plan, Sound
from speechmill.models.common.codec.loading import load_half
from speechmill.models.common.codec.stage import CodecStage
from speechmill.models.common.resample import resample_by_soxr
from speechmill.models.qwen3_tts.codec.config import LONGEST_S, read_config
from speechmill.models.qwen3_tts.codec.decoder import Decoder
from speechmill.models.qwen3_tts.codec.encoder import Encoder
from speechmill.models.qwen3_tts.codec.weights import open_source
from speechmill.models.qwen3_tts.features import IN_CONTEXT, TIMBRE, Reference, pack, read_reference
from speechmill.models.qwen3_tts.speaker.encoder import SpeakerEncoder, load_speaker
from speechmill.models.stage import StageOptions, StageTask


def codec_stage(options: StageOptions) -> CodecStage:
    """Where a task has a reference in context, its stream goes on from what the reference sounds like.

    Raises CheckpointError for weights that do not fit, CannotLoad where there is no room for them.
    """
    folder = options.folder
    config = read_config(folder).decoder
    decoder, memory = load_half(lambda weights: Decoder(weights, config), open_source(folder), options)

    def heard(task: StageTask) -> Tensor | None:
        reference = read_reference(task, decoder.codebooks)
        if reference is None or reference.codes is None:
            return None
        return torch.from_numpy(reference.codes.astype(np.int64))

    return CodecStage(decoder, memory, options, heard)


def encode_stage(options: StageOptions) -> EncodeStage:
    """Raises CheckpointError for weights that do not fit, CannotLoad where there is no room for them."""
    folder = options.folder
    config = read_config(folder)
    speaker, speaker_bytes = load_speaker(folder, torch.device(options.device))
    encoder, needs = load_half(lambda weights: Encoder(weights, config.encoder), open_source(folder), options)
    memory = {**needs, "the speaker encoder": speaker_bytes}
    return EncodeStage(encoder, memory, _planner(config.sample_rate, speaker), warm_mode=IN_CONTEXT)


def _planner(codec_hz: int, speaker: SpeakerEncoder) -> Callable[[StageTask, Sound], Plan]:
    def plan(task: StageTask, sound: Sound) -> Plan:
        """Each encoder hears the recording at its rate, resampled once from the one that it came at."""
        mode = task.params.get("mode")
        if mode not in (IN_CONTEXT, TIMBRE):
            raise ValueError(f"mode {mode!r} is neither {IN_CONTEXT} nor {TIMBRE}")
        seconds = len(sound.samples) / sound.rate_hz
        if seconds > LONGEST_S:
            raise ValueError(f"the recording is longer than {LONGEST_S} seconds")
        rates_hz = {speaker.sample_rate, *([codec_hz] if mode == IN_CONTEXT else [])}
        at = {hz: resample_by_soxr(sound.samples, sound.rate_hz, hz) for hz in rates_hz}
        voiced, spoken = at[speaker.sample_rate], at[codec_hz] if mode == IN_CONTEXT else torch.empty(0)
        if len(voiced) < speaker.shortest:
            raise ValueError(f"the recording is shorter than {speaker.shortest / speaker.sample_rate:.2f} seconds")
        return Plan(spoken, lambda codes: pack(Reference(speaker(voiced).numpy(), _taken(codes))))

    return plan


def _taken(codes: Tensor) -> NDArray[np.uint16] | None:
    return codes.numpy().astype(np.uint16) if len(codes) else None
