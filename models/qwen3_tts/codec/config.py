"""What `speech_tokenizer/config.json` of a checkpoint says of the codec."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speechmill.models.common.config import count, counts, ensure, ensure_plain_rope, flag, obj, positive, read_json
from speechmill.models.common.transformer import LayerShape, read_layer_shape

FOLDER = "speech_tokenizer"
MODEL_TYPE = "qwen3_tts_tokenizer_12hz"
DOWNSAMPLING = 2
"""Of the rows behind the encoder's transformer, whatever the file says."""
LONGEST_S = 30
"""Of a recording. The encoder attends to all of what was before, and keeps it."""


@dataclass(frozen=True, slots=True)
class TransformerConfig:
    """Of the decoder or the encoder."""

    layer: LayerShape
    rope_base: float
    window: int
    """Rows that a query sees, its own included."""


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    codebooks: int
    entries: int
    """Of each codebook, the semantic one included: `semantic_codebook_size` says something else and is not true."""
    width: int
    """Of what the codes add up to. Codebooks hold vectors of half of it."""
    latent: int
    transformer: TransformerConfig
    upsamplings: tuple[int, ...]
    channels: int
    rates: tuple[int, ...]

    @property
    def frame_samples(self) -> int:
        return math.prod(self.upsamplings) * math.prod(self.rates)


@dataclass(frozen=True, slots=True)
class EncoderConfig:
    """Mimi's encoder (arXiv:2410.00037)."""

    codebooks: int
    """The first of those in the file."""
    entries: int
    code_width: int
    width: int
    """Of the transformer."""
    filters: int
    kernel: int
    last_kernel: int
    residual_kernel: int
    residual_layers: int
    dilation_growth: int
    compress: int
    rates: tuple[int, ...]
    """In the encoder's order; a downsampling by two follows them."""
    transformer: TransformerConfig

    @property
    def frame_samples(self) -> int:
        return math.prod(self.rates) * DOWNSAMPLING


@dataclass(frozen=True, slots=True)
class CodecConfig:
    sample_rate: int
    decoder: DecoderConfig
    encoder: EncoderConfig


def read_config(folder: Path) -> CodecConfig:
    """Of the codec in the checkpoint `folder`. Raises CheckpointError in one line that names the file and the field."""
    return read_json(folder / FOLDER / "config.json", _codec)


def _codec(config: Mapping[str, Any]) -> CodecConfig:
    if config.get("model_type") != MODEL_TYPE:
        raise ValueError(f"model_type is {config.get('model_type')!r}, expected {MODEL_TYPE!r}")
    rate = count(config, "output_sample_rate")
    if count(config, "input_sample_rate") != rate:
        raise ValueError("input_sample_rate and output_sample_rate differ")
    decoder = _decoder(obj(config["decoder_config"], "decoder_config"))
    encoder = _encoder(
        obj(config["encoder_config"], "encoder_config"), count(config, "encoder_valid_num_quantizers"), rate
    )
    if decoder.frame_samples != encoder.frame_samples:
        raise ValueError("encoder_config and decoder_config make frames of different lengths")
    if (decoder.codebooks, decoder.entries) != (encoder.codebooks, encoder.entries):
        raise ValueError("encoder_config and decoder_config have different codebooks")
    return CodecConfig(rate, decoder, encoder)


def _decoder(config: Mapping[str, Any]) -> DecoderConfig:
    ensure(config, hidden_act="silu", attention_bias=False)
    ensure_plain_rope(config)
    return DecoderConfig(
        codebooks=count(config, "num_quantizers"),
        entries=count(config, "codebook_size"),
        width=count(config, "codebook_dim"),
        latent=count(config, "latent_dim"),
        transformer=_transformer(config, "rms_norm_eps", count(config, "sliding_window")),
        upsamplings=counts(config, "upsampling_ratios"),
        channels=count(config, "decoder_dim"),
        rates=counts(config, "upsample_rates"),
    )


def _encoder(config: Mapping[str, Any], codebooks: int, sample_rate: int) -> EncoderConfig:
    """Its attention sees everything before, as in transformers 4.57, with which the model was released; 5.x applies
    `sliding_window`, and so does a file whose `use_sliding_window` is true. Within ten seconds it makes no difference.
    """
    ensure(config, hidden_act="gelu", attention_bias=False, use_causal_conv=True, use_conv_shortcut=False)
    ensure(config, pad_mode="constant", num_semantic_quantizers=1)
    if codebooks > count(config, "num_quantizers"):
        raise ValueError("encoder_valid_num_quantizers is more than num_quantizers")
    rates = counts(config, "upsampling_ratios")[::-1]
    windowed = flag(config, "use_sliding_window", False)
    window = count(config, "sliding_window") if windowed else LONGEST_S * sample_rate // math.prod(rates)
    return EncoderConfig(
        codebooks=codebooks,
        entries=count(config, "codebook_size"),
        code_width=count(config, "codebook_dim"),
        width=count(config, "hidden_size"),
        filters=count(config, "num_filters"),
        kernel=count(config, "kernel_size"),
        last_kernel=count(config, "last_kernel_size"),
        residual_kernel=count(config, "residual_kernel_size"),
        residual_layers=count(config, "num_residual_layers"),
        dilation_growth=count(config, "dilation_growth_rate"),
        compress=count(config, "compress"),
        rates=rates,
        transformer=_transformer(config, "norm_eps", window),
    )


def _transformer(config: Mapping[str, Any], eps: str, window: int) -> TransformerConfig:
    return TransformerConfig(read_layer_shape(config, eps), positive(config, "rope_theta"), window)
