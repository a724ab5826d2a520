"""The codec's two stages: `codec` (codes → s16le at 44.1 kHz) and `encode` (a recording → its codes)."""

from math import prod

from speechmill.models.common.codec.decoder import POSITIONS
from speechmill.models.common.codec.encoding import EncodeStage, Plan, Sound
from speechmill.models.common.codec.loading import load_half
from speechmill.models.common.codec.stage import CodecStage
from speechmill.models.common.resample import resample
from speechmill.models.fish_speech.codec import features
from speechmill.models.fish_speech.codec.config import CodecConfig, read_config
from speechmill.models.fish_speech.codec.decoder import Decoder
from speechmill.models.fish_speech.codec.encoder import Encoder
from speechmill.models.fish_speech.codec.weights import open_source, rename
from speechmill.models.stage import StageOptions


def codec_stage(options: StageOptions) -> CodecStage:
    """Raises CheckpointError for weights that do not fit, CannotLoad where there is no room for them."""
    folder = options.folder
    config = read_config(folder)
    decoder, memory = load_half(lambda weights: Decoder(weights, config), open_source(folder), options, rename)
    return CodecStage(decoder, memory, options)


def encode_stage(options: StageOptions) -> EncodeStage:
    """Raises CheckpointError for weights that do not fit, CannotLoad where there is no room for them."""
    folder = options.folder
    config = read_config(folder)
    encoder, memory = load_half(lambda weights: Encoder(weights, config), open_source(folder), options, rename)
    return EncodeStage(encoder, memory, lambda task, sound: _plan(config, sound))


def _plan(config: CodecConfig, sound: Sound) -> Plan:
    """Raises ValueError for a recording that is too long: the encoder's transformer counts rows, and more of them."""
    samples = resample(sound.samples, sound.rate_hz, config.sample_rate)
    longest = POSITIONS // prod(config.quantizer.downsample_factor) * config.frame_samples
    if len(samples) > longest:
        raise ValueError(f"the recording is longer than {longest // config.sample_rate} seconds")
    return Plan(samples, lambda codes: features.pack(codes.T.numpy()))
