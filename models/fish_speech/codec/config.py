"""Shape of the codec. The release has no file for it, so its values are the defaults; other sizes bring one."""

import math
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from speechmill.models.stage import CheckpointError

ENCODER_WINDOW = 512
ENCODER_HEAD_CHANNELS = 64
"""Of its transformer there is a head for so many channels, whatever a head's size (upstream's EncoderBlock)."""
FILE = "codec_config.json"


class _Part(BaseModel):
    """Fields of training are not ours and are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class EncoderAttention(_Part):
    """`transformer_general_config`; the rest of that transformer's shape follows from its block."""

    n_local_heads: int = -1
    head_dim: int = 64
    rope_base: float = 10000
    norm_eps: float = 1e-5


class TransformerConfig(_Part):
    n_layer: int = 8
    n_head: int = 16
    n_local_heads: int = -1
    head_dim: int = 64
    dim: int = 1024
    intermediate_size: int = 3072
    rope_base: float = 10000
    norm_eps: float = 1e-5

    @property
    def kv_heads(self) -> int:
        return self.n_head if self.n_local_heads < 0 else self.n_local_heads


class WindowedConfig(_Part):
    window_size: int = 128
    config: TransformerConfig = TransformerConfig()


class QuantizerConfig(_Part):
    input_dim: int = 1024
    n_codebooks: int = 9
    """Residual ones."""
    codebook_size: int = 1024
    codebook_dim: int = 8
    semantic_codebook_size: int = 4096
    downsample_factor: tuple[int, ...] = (2, 2)
    transformer: WindowedConfig = WindowedConfig()
    """Of `pre_module` and of `post_module`."""

    @property
    def codebooks(self) -> tuple[int, ...]:
        """Entries of each codebook, the semantic one first."""
        return self.semantic_codebook_size, *[self.codebook_size] * self.n_codebooks


class CodecConfig(_Part):
    sample_rate: int = 44100
    encoder_dim: int = 64
    encoder_rates: tuple[int, ...] = (2, 4, 8, 8)
    encoder_transformer_layers: tuple[int, ...] = (0, 0, 0, 4)
    transformer_general_config: EncoderAttention = EncoderAttention()
    decoder_dim: int = 1536
    decoder_rates: tuple[int, ...] = Field((8, 8, 4, 2), min_length=1)
    quantizer: QuantizerConfig = QuantizerConfig()

    def encoder_transformer(self, block: int) -> TransformerConfig:
        """Of the encoder's block number `block`, from 0."""
        dim = self.encoder_dim << (block + 1)
        return TransformerConfig(
            **self.transformer_general_config.model_dump(),
            n_layer=self.encoder_transformer_layers[block],
            n_head=dim // ENCODER_HEAD_CHANNELS,
            dim=dim,
            intermediate_size=3 * dim,
        )

    @property
    def frame_samples(self) -> int:
        return math.prod(self.decoder_rates) * math.prod(self.quantizer.downsample_factor)


def read_config(folder: Path) -> CodecConfig:
    """Of the codec in `folder`. Raises CheckpointError for a file that does not describe one."""
    path = folder / FILE
    try:
        config = CodecConfig.model_validate_json(path.read_bytes()) if path.exists() else CodecConfig()
    except ValidationError as error:
        first = error.errors()[0]
        raise CheckpointError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    if len(config.encoder_transformer_layers) < len(config.encoder_rates):
        raise CheckpointError(f"{path}: encoder_transformer_layers has fewer entries than encoder_rates")
    if math.prod(config.encoder_rates) != math.prod(config.decoder_rates):
        raise CheckpointError(f"{path}: encoder_rates and decoder_rates make frames of different lengths")
    return config
