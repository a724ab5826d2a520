"""What upstream takes where a `config.json` says nothing (its `configuration_qwen3_tts.py`). Needs no torch.

The released files say everything; a fine-tune that was saved with Transformers leaves out what is as it is here.
"""

from collections.abc import Mapping
from typing import Any

from speechmill.models.common.config import obj

_IDS = {
    "im_start_token_id": 151_644,
    "im_end_token_id": 151_645,
    "tts_pad_token_id": 151_671,
    "tts_bos_token_id": 151_672,
    "tts_eos_token_id": 151_673,
}
_TALKER = {
    "vocab_size": 3072,
    "hidden_size": 1024,
    "intermediate_size": 2048,
    "num_hidden_layers": 20,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32_768,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10_000,
    "num_code_groups": 32,
    "text_hidden_size": 2048,
}
_PREDICTOR = {
    "vocab_size": 2048,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 5,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10_000,
    "num_code_groups": 32,
}
_SPEAKER = {
    "mel_dim": 128,
    "enc_dim": 1024,
    "enc_channels": [512, 512, 512, 512, 1536],
    "enc_kernel_sizes": [5, 3, 3, 3, 1],
    "enc_dilations": [1, 2, 3, 4, 1],
    "enc_attention_channels": 128,
    "enc_res2net_scale": 8,
    "enc_se_channels": 128,
    "sample_rate": 24_000,
}


def ids_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """The file's own fields."""
    return {**_IDS, **config}


def talker_of(config: Mapping[str, Any]) -> dict[str, Any]:
    return {**_TALKER, **obj(config["talker_config"], "talker_config")}


def predictor_of(talker: Mapping[str, Any]) -> dict[str, Any]:
    return {**_PREDICTOR, **obj(talker.get("code_predictor_config") or {}, "code_predictor_config")}


def speaker_of(config: Mapping[str, Any]) -> dict[str, Any]:
    return {**_SPEAKER, **obj(config["speaker_encoder_config"], "speaker_encoder_config")}
