"""The codec's two stages: `codec` (codes → s16le at 24 kHz) and `encode` (a recording → how it sounds, and codes)."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from speechmill.models.common.checkpoint import Inspection, Safetensors, Weights
from speechmill.models.common.codec.encoding import EncodeStage, Plan, Sound
from speechmill.models.common.codec.loading import load_half
from speechmill.models.common.codec.stage import CodecStage
from speechmill.models.common.memory import Needs, ensure_room
from speechmill.models.common.resample import KAISER, resample
from speechmill.models.qwen3_tts.codec.config import LONGEST_S, read_config
from speechmill.models.qwen3_tts.codec.decoder import Decoder
from speechmill.models.qwen3_tts.codec.encoder import Encoder
from speechmill.models.qwen3_tts.codec.weights import open_source
from speechmill.models.qwen3_tts.features import Reference, pack, read_reference
from speechmill.models.qwen3_tts.speaker.config import read_config as read_speaker_config
from speechmill.models.qwen3_tts.speaker.encoder import SpeakerEncoder
from speechmill.models.stage import StageOptions, StageTask

IN_CONTEXT, TIMBRE = "icl", "xvec"
"""Modes: with the recording's codes, or without."""


def codec_stage(options: StageOptions) -> CodecStage:
    """Where a task has a reference in context, its stream goes on from what the reference sounds like.

    Raises CheckpointError for weights that do not fit, CannotLoad where there is no room for them.
    """
    folder = options.checkpoint or Path()
    config = read_config(folder).decoder
    decoder, memory = load_half(lambda weights: Decoder(weights, config), open_source(folder), options)

    def heard(task: StageTask) -> Tensor | None:
        reference = read_reference(task, config.codebooks, config.entries)
        return None if reference is None else reference.codes

    return CodecStage(decoder, memory, options, heard, limit=config.entries)


def encode_stage(options: StageOptions) -> EncodeStage:
    """Raises CheckpointError for weights that do not fit, CannotLoad where there is no room for them."""
    folder = options.checkpoint or Path()
    config = read_config(folder)
    speaker, speaker_needs = _load_speaker(folder, torch.device(options.device))
    encoder, needs = load_half(lambda weights: Encoder(weights, config.encoder), open_source(folder), options)
    plan = _planner(config.sample_rate, speaker)
    return EncodeStage(encoder, {**needs, **speaker_needs}, plan, warm_mode=IN_CONTEXT)


def _load_speaker(folder: Path, device: torch.device) -> tuple[SpeakerEncoder, Needs]:
    config, source = read_speaker_config(folder), Safetensors(folder / "model.safetensors")
    inspection = Inspection(source)
    SpeakerEncoder(inspection, config)
    needs = {"the speaker encoder": torch.float32.itemsize * inspection.parameters}
    ensure_room(device, needs, "choose another device, or close what else is on it")
    return SpeakerEncoder(Weights(source, device, torch.float32), config), needs


def _planner(codec_hz: int, speaker: SpeakerEncoder) -> Callable[[StageTask, Sound], Plan]:
    def plan(task: StageTask, sound: Sound) -> Plan:
        """Both encoders hear the recording resampled once, from the rate that it came at."""
        mode = task.params.get("mode")
        if mode not in (IN_CONTEXT, TIMBRE):
            raise ValueError(f"mode {mode!r} is neither {IN_CONTEXT} nor {TIMBRE}")
        seconds = len(sound.samples) / sound.rate_hz
        if seconds > LONGEST_S:
            raise ValueError(f"the recording is longer than {LONGEST_S} seconds")
        voiced = resample(sound.samples, sound.rate_hz, speaker.sample_rate, KAISER)
        if len(voiced) < speaker.shortest:
            raise ValueError(f"the recording is shorter than {speaker.shortest / speaker.sample_rate:.2f} seconds")
        spoken = resample(sound.samples, sound.rate_hz, codec_hz, KAISER) if mode == IN_CONTEXT else torch.empty(0)
        return Plan(spoken, lambda codes: pack(Reference(speaker(voiced), codes if len(codes) else None)))

    return plan
