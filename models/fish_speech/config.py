"""What a checkpoint says of itself in `config.json`: the released layout and the older flat one."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speechmill.models.common.checkpoint import CheckpointError
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
    """Residual codes from here on are never drawn; 0 for all as the model was made, which the codec clamps."""


def read_config(folder: Path) -> TalkerConfig:
    """Raises CheckpointError in one line that names the file and the field."""
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        kind = config.get("model_type")
        if kind == RELEASED:
            return _released(config)
        if kind == FLAT:
            return _flat(config)
    except KeyError as error:
        raise CheckpointError(f"{path}: {error.args[0]} is missing") from None
    except (OSError, ValueError, AttributeError) as error:
        raise CheckpointError(f"cannot read {path}: {error}") from None
    raise CheckpointError(f"{path}: model_type is {kind!r}, expected {RELEASED!r} or {FLAT!r}")


def _released(config: Mapping[str, Any]) -> TalkerConfig:
    text, audio = config["text_config"], config["audio_decoder_config"]
    return TalkerConfig(
        slow=_shape(text, text["norm_eps"]),
        fast=_shape(audio, text["norm_eps"]),
        vocabulary=text["vocab_size"],
        codebook=audio["vocab_size"],
        codebooks=audio["num_codebooks"],
        positions=text["max_seq_len"],
        rope_base=text["rope_base"],
        tied=text["tie_word_embeddings"],
        scaled=True,
        normed=True,
        semantic=(config["semantic_start_token_id"], config["semantic_end_token_id"]),
    )


def _flat(config: Mapping[str, Any]) -> TalkerConfig:
    """What is said of the fast transformer carries `fast_`; what is not said of it is as in the slow one."""
    fast = {**config, "n_layer": config["n_fast_layer"]}
    fast |= {key.removeprefix("fast_"): value for key, value in config.items() if key.startswith("fast_")}
    fast |= {"head_dim": config.get("fast_head_dim") or fast["dim"] // fast["n_head"]}
    return TalkerConfig(
        slow=_shape(config, config["norm_eps"]),
        fast=_shape(fast, config["norm_eps"]),
        vocabulary=config["vocab_size"],
        codebook=config["codebook_size"],
        codebooks=config["num_codebooks"],
        positions=config["max_seq_len"],
        rope_base=config["rope_base"],
        tied=config.get("tie_word_embeddings", True),
        scaled=config.get("scale_codebook_embeddings", False),
        normed=config.get("norm_fastlayer_input", False),
        semantic=(config["semantic_begin_id"], config["semantic_end_id"]),
    )


def _shape(config: Mapping[str, Any], eps: float) -> LayerShape:
    heads, kv_heads = config["n_head"], config.get("n_local_heads", -1)
    return LayerShape(
        layers=config["n_layer"],
        width=config["dim"],
        heads=heads,
        kv_heads=heads if kv_heads in (None, -1) else kv_heads,
        size=config.get("head_dim") or config["dim"] // heads,
        hidden=config["intermediate_size"],
        eps=eps,
        qk_norm=config.get("attention_qk_norm", False),
        qkv_bias=config.get("attention_qkv_bias", False),
        out_bias=config.get("attention_o_bias", False),
    )
