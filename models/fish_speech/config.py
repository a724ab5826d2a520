"""What a checkpoint says of itself in `config.json`: the released layout and the older flat one."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speechmill.models.common.config import count, flag, obj, of_part, positive, read_json
from speechmill.models.common.transformer import LayerShape

RELEASED = "fish_qwen3_omni"
FLAT = "dual_ar"


@dataclass(frozen=True, slots=True)
class TalkerConfig:
    """The two transformers and how they meet."""

    slow: LayerShape
    fast: LayerShape
    vocabulary: int
    codebook: int
    """Codes of each codebook."""
    codebooks: int
    """Codes in a frame, the semantic one included."""
    positions: int
    """Longest prompt with its frames."""
    rope_base: float
    """Of both transformers, as upstream has it."""
    tied: bool
    """The embedding is the output head too."""
    scaled: bool
    """Embeddings of frames are divided by √(codebooks + 1)."""
    normed: bool
    """The fast transformer is given the hidden state after the final norm."""
    semantic: tuple[int, int]
    """First and last id of the semantic tokens, unless the tokenizer says otherwise."""
    residual_limit: int = 0
    """Residual codes from here on, which the codec has not, are never drawn; 0 for all, as upstream draws them."""


def read_config(folder: Path) -> TalkerConfig:
    """Raises CheckpointError in one line that names the file and the field."""
    return read_json(folder / "config.json", _config)


def _config(config: Mapping[str, Any]) -> TalkerConfig:
    kind = config.get("model_type")
    if kind == RELEASED:
        return _released(config)
    if kind == FLAT:
        return _flat(config)
    raise ValueError(f"model_type is {kind!r}, expected {RELEASED!r} or {FLAT!r}")


def _released(config: Mapping[str, Any]) -> TalkerConfig:
    text, audio = (obj(config[name], name) for name in ("text_config", "audio_decoder_config"))
    eps = positive(text, "norm_eps")
    return TalkerConfig(
        slow=_shape(text, eps, "text_config"),
        fast=_shape(audio, eps, "audio_decoder_config"),
        vocabulary=count(text, "vocab_size"),
        codebook=count(audio, "vocab_size"),
        codebooks=count(audio, "num_codebooks"),
        positions=count(text, "max_seq_len"),
        rope_base=positive(text, "rope_base"),
        tied=flag(text, "tie_word_embeddings", True),
        scaled=True,
        normed=True,
        semantic=(count(config, "semantic_start_token_id"), count(config, "semantic_end_token_id")),
    )


def _flat(config: Mapping[str, Any]) -> TalkerConfig:
    """What is said of the fast transformer carries `fast_`; what is not said of it, or null, is as in the slow one."""
    said = {key: value for key, value in config.items() if key.startswith("fast_") and value is not None}
    eps = positive(config, "norm_eps")
    slow = _shape(config, eps, "slow transformer")
    fast = {**config, "n_layer": config["n_fast_layer"], "head_dim": slow.size, "n_local_heads": slow.kv_heads}
    fast |= {key.removeprefix("fast_"): value for key, value in said.items()}
    return TalkerConfig(
        slow=slow,
        fast=_shape(fast, eps, "fast transformer"),
        vocabulary=count(config, "vocab_size"),
        codebook=count(config, "codebook_size"),
        codebooks=count(config, "num_codebooks"),
        positions=count(config, "max_seq_len"),
        rope_base=positive(config, "rope_base"),
        tied=flag(config, "tie_word_embeddings", True),
        scaled=flag(config, "scale_codebook_embeddings", False),
        normed=flag(config, "norm_fastlayer_input", False),
        semantic=(count(config, "semantic_begin_id"), count(config, "semantic_end_id")),
    )


def _shape(config: Mapping[str, Any], eps: float, part: str) -> LayerShape:
    with of_part(part):
        heads, width = count(config, "n_head"), count(config, "dim")
        return LayerShape(
            layers=count(config, "n_layer"),
            width=width,
            heads=heads,
            kv_heads=heads if config.get("n_local_heads") in (None, -1) else count(config, "n_local_heads"),
            size=count(config, "head_dim") if config.get("head_dim") else width // heads,
            hidden=count(config, "intermediate_size"),
            eps=eps,
            qk_norm=flag(config, "attention_qk_norm", False),
            qk_cast_last=True,
            qkv_bias=flag(config, "attention_qkv_bias", False),
            out_bias=flag(config, "attention_o_bias", False),
        )
