"""The parts of Qwen3-TTS's codec and its speaker encoder, from whichever set of goldens there is."""

import io
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import soundfile
import torch
from goldens import Goldens
from torch import Tensor

from speechmill.models.common.checkpoint import Weights
from speechmill.models.qwen3_tts.codec.config import CodecConfig, read_config
from speechmill.models.qwen3_tts.codec.decoder import Decoder
from speechmill.models.qwen3_tts.codec.encoder import Encoder
from speechmill.models.qwen3_tts.codec.weights import open_source
from speechmill.models.qwen3_tts.speaker.encoder import SpeakerEncoder, load_speaker

GOLDENS = Goldens("qwen3_tts")
BASE = "base"


def cases(*kinds: str) -> Any:
    found = GOLDENS.of_kinds(*kinds)
    return pytest.mark.parametrize("case", found, ids=[case["name"] for case in found])


def stored(case: dict[str, Any], name: str) -> Tensor:
    return GOLDENS.tensor((case["inputs"] | case["outputs"])[name])


def assert_close(case: dict[str, Any], found: Tensor, name: str, head: bool = False) -> None:
    """An axis for the batch is no difference. `head`: only the beginning along the last axis is stored."""
    wanted = stored(case, name).squeeze(0)
    torch.testing.assert_close(found[..., : wanted.shape[-1]] if head else found, wanted, rtol=0, atol=case["atol"])


def checkpoint(name: str = BASE) -> Path:
    return GOLDENS.folder / name


@cache
def config(name: str = BASE) -> CodecConfig:
    return read_config(checkpoint(name))


@cache
def decoder(name: str = BASE) -> Decoder:
    return Decoder(Weights(open_source(checkpoint(name))), config(name).decoder)


@cache
def encoder(name: str = BASE) -> Encoder:
    return Encoder(Weights(open_source(checkpoint(name))), config(name).encoder)


@cache
def speaker(name: str = BASE) -> SpeakerEncoder:
    return load_speaker(checkpoint(name), torch.device("cpu"))[0]


def decode(made: Decoder, codes: Tensor, size: int = 0) -> Tensor:
    """Codes [frames, codebooks] in chunks of `size` frames, 0 for all at once → samples."""
    stream = made.streams.open()
    samples = [made([stream], [part])[0] for part in codes.split(size or len(codes))]
    made.streams.close(stream)
    return torch.cat(samples)


def encode(made: Encoder, samples: Tensor, size: int = 0) -> Tensor:
    """Samples in blocks of `size` frames, 0 for all at once → codes [frames, codebooks]."""
    stream = made.streams.open()
    codes = [made([stream], [part])[0] for part in samples.split(size * made.frame_samples or len(samples))]
    made.streams.close(stream)
    return torch.cat(codes)


def wav(sound: Tensor, rate: int) -> bytes:
    """A recording as the farm stores it."""
    file = io.BytesIO()
    soundfile.write(file, sound.numpy(), rate, format="WAV", subtype="FLOAT")
    return file.getvalue()
