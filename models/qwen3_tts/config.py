"""What a checkpoint says of itself in `config.json`."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speechmill.models.common.config import (
    count,
    ensure,
    ensure_plain_rope,
    flag,
    obj,
    of_part,
    positive,
    read_json,
    whole,
)
from speechmill.models.common.transformer import LayerShape, read_layer_shape
from speechmill.models.qwen3_tts.codec.config import read_config as read_codec_config
from speechmill.models.qwen3_tts.defaults import ids_of, predictor_of, talker_of
from speechmill.models.stage import CheckpointError

CUSTOM_VOICE, VOICE_DESIGN, BASE = "custom_voice", "voice_design", "base"
SMALL = "0b6"
CONTROL_IDS = 1024
"""At the end of the talker's vocabulary, above the codes."""


@dataclass(frozen=True, slots=True)
class TextIds:
    """Ids of the text vocabulary that prompts are put together with."""

    start: int
    end: int
    """Of a turn."""
    pad: int
    bos: int
    eos: int
    """Of the text that is spoken."""


@dataclass(frozen=True, slots=True)
class CodecIds:
    """The same of the talker's vocabulary."""

    pad: int
    bos: int
    eos: int
    think: int
    nothink: int
    think_bos: int
    think_eos: int


@dataclass(frozen=True, slots=True)
class TalkerConfig:
    """The two transformers, how they meet, and who speaks in which language."""

    kind: str
    """`custom_voice`, `voice_design` or `base`."""
    size: str
    talker: LayerShape
    predictor: LayerShape
    rope_base: float
    predictor_rope_base: float
    positions: int
    """Longest prompt with its frames."""
    groups: int
    """Codes in a frame, one of each codebook."""
    vocabulary: int
    """Of the talker: codes of the first codebook and control ids."""
    residual_codes: int
    """Codes of each of the other codebooks."""
    text_vocabulary: int
    text_width: int
    text: TextIds
    codec: CodecIds
    languages: Mapping[str, int]
    """Control ids by name, as speakers have them."""
    speakers: Mapping[str, int]
    dialects: Mapping[str, str]
    """Languages of speakers that change what Chinese means."""

    @property
    def first_codes(self) -> int:
        """Codes of the first codebook."""
        return self.vocabulary - CONTROL_IDS

    @property
    def codebooks(self) -> tuple[int, ...]:
        """Codes of each group."""
        return (self.first_codes, *[self.residual_codes] * (self.groups - 1))

    @property
    def follows_instructions(self) -> bool:
        return self.kind != BASE and not (self.kind == CUSTOM_VOICE and self.size == SMALL)


def read_config(folder: Path) -> TalkerConfig:
    """Raises CheckpointError in one line that names the file and the field."""
    return read_json(folder / "config.json", _config)


def ensure_codec_fits(config: TalkerConfig, folder: Path) -> None:
    """Raises CheckpointError, in one line, for a talker whose codes are not those of the codec in the same folder."""
    codes, codec = config.codebooks, read_codec_config(folder).decoder
    if len(codes) != codec.codebooks or max(codes) > codec.entries:
        taken = f"the codec takes {codec.codebooks} below {codec.entries}"
        raise CheckpointError(f"{folder}: the talker makes {len(codes)} codes below {max(codes)} in a frame, {taken}")


def _config(config: Mapping[str, Any]) -> TalkerConfig:
    kind = config["tts_model_type"]
    if kind not in (CUSTOM_VOICE, VOICE_DESIGN, BASE):
        raise ValueError(f"tts_model_type is {kind!r}, expected {CUSTOM_VOICE}, {VOICE_DESIGN} or {BASE}")
    talker = talker_of(config)
    predictor = predictor_of(talker)
    vocabulary, text_vocabulary = count(talker, "vocab_size"), count(talker, "text_vocab_size")
    groups = count(talker, "num_code_groups")
    if vocabulary <= CONTROL_IDS or groups < 2 or count(predictor, "num_code_groups") != groups:
        raise ValueError(f"{groups} code groups and a vocabulary of {vocabulary} do not fit the code predictor")
    return TalkerConfig(
        kind=kind,
        size=str(config.get("tts_model_size")),
        talker=_shape(talker, "talker_config"),
        predictor=_shape(predictor, "code_predictor_config"),
        rope_base=positive(talker, "rope_theta"),
        predictor_rope_base=positive(predictor, "rope_theta"),
        positions=count(talker, "max_position_embeddings"),
        groups=groups,
        vocabulary=vocabulary,
        residual_codes=count(predictor, "vocab_size"),
        text_vocabulary=text_vocabulary,
        text_width=count(talker, "text_hidden_size"),
        text=_text_ids(ids_of(config), text_vocabulary),
        codec=_codec_ids(talker, vocabulary),
        languages=_ids(talker, "codec_language_id", vocabulary),
        speakers=_ids(talker, "spk_id", vocabulary),
        dialects=_dialects(talker),
    )


def _shape(config: Mapping[str, Any], part: str) -> LayerShape:
    with of_part(part):
        ensure(config, use_sliding_window=False, hidden_act="silu")
        ensure_plain_rope(config)
        biased = flag(config, "attention_bias", False)
        return read_layer_shape(config, qk_norm=True, qkv_bias=biased, out_bias=biased)


def _text_ids(config: Mapping[str, Any], vocabulary: int) -> TextIds:
    names = ("im_start", "im_end", "tts_pad", "tts_bos", "tts_eos")
    return TextIds(*(_id(config, f"{name}_token_id", vocabulary) for name in names))


def _codec_ids(config: Mapping[str, Any], vocabulary: int) -> CodecIds:
    pad, bos = (_id(config, f"codec_{name}_id", vocabulary) for name in ("pad", "bos"))
    eos = _id(config, "codec_eos_token_id", vocabulary)
    thinking = (_id(config, f"codec_{name}_id", vocabulary) for name in ("think", "nothink", "think_bos", "think_eos"))
    if eos < vocabulary - CONTROL_IDS:
        raise ValueError(f"codec_eos_token_id is {eos}, which is a code")
    return CodecIds(pad, bos, eos, *thinking)


def _ids(config: Mapping[str, Any], name: str, vocabulary: int) -> dict[str, int]:
    """Ids by names in lower case."""
    named = obj(config[name], name)
    return {key.casefold(): _id(named, key, vocabulary) for key in named}


def _id(config: Mapping[str, Any], name: str, vocabulary: int) -> int:
    value = whole(config, name)
    if value >= vocabulary:
        raise ValueError(f"{name} is {value}, beyond the vocabulary of {vocabulary}")
    return value


def _dialects(config: Mapping[str, Any]) -> dict[str, str]:
    """False stands for none."""
    named = obj(config.get("spk_is_dialect") or {}, "spk_is_dialect")
    return {speaker.casefold(): name.casefold() for speaker, name in named.items() if isinstance(name, str)}
