"""A model's card: what it is called, what it accepts and how it is staged. Plain data, no torch.

A family's `model.toml` is one card, or what its models share with one `[[models]]` table for each of them.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Need = Literal["none", "optional", "required"]
VoiceKind = Literal["builtin", "uploaded", "precomputed"]
TaskType = Literal["CustomVoice", "VoiceDesign", "Base"]


class CardPart(BaseModel):
    """Unknown keys in a card are errors, and a card never changes after it is read."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Licence(CardPart):
    code: str
    weights: str
    note: str = ""


class VoiceCard(CardPart):
    """A voice that the model brings."""

    name: str
    languages: tuple[str, ...] = ()
    description: str = ""


class Speed(CardPart):
    """`native`: the model speaks faster or slower itself; `stretch`: the farm stretches its audio; `none`: neither."""

    by: Literal["native", "stretch", "none"] = "none"
    minimum: float = 0.25
    maximum: float = 4.0


class ExtraParameter(CardPart):
    """What one key of `extra_params` takes."""

    kind: Literal["number", "integer", "boolean", "string", "rising"]
    """`rising`: a list of at least two finite numbers, each larger than the one before."""
    minimum: float | None = None
    maximum: float | None = None
    above: float | None = None
    """The value must be larger than this."""
    also: tuple[float, ...] = ()
    """Values outside of the bounds that are taken all the same, such as top_k's -1."""
    choices: tuple[str, ...] = ()
    description: str = ""


SAMPLER_PARAMETERS = {
    "temperature": ExtraParameter(kind="number", above=0, maximum=2, description="Higher is livelier."),
    "top_p": ExtraParameter(kind="number", above=0, maximum=1, description="Share of probability to draw from."),
    "top_k": ExtraParameter(kind="integer", minimum=0, also=(-1,), description="Most likely codes to draw from."),
    "repetition_penalty": ExtraParameter(kind="number", minimum=0.5, maximum=2, description="Above 1: fewer loops."),
}


class Parameters(CardPart):
    """What a request to this model may carry. The one table behind validation, `/v1/models` and the docs."""

    voice: Literal["none", "optional", "or_ref_audio"] = "optional"
    """`none`: the model knows no voices; `or_ref_audio`: one of the two must be given."""
    voice_kinds: tuple[VoiceKind, ...] = ("builtin",)
    speed: Speed = Speed()
    instructions: Need = "none"
    instructions_chars: int = 0
    """Longest instructions; 0 for the farm's limit."""
    instruction_attributes: tuple[tuple[str, ...], ...] = ()
    """Where not empty, instructions are a comma-separated list of these, at most one of each group."""
    instructions_replace_input: bool = False
    """With instructions the input may be empty."""
    language: bool = False
    ref_audio: Need = "none"
    """`required`: unless a voice or a speaker embedding stands for it."""
    ref_text: Need | Literal["with_ref_audio"] = "none"
    """`required` and `with_ref_audio`: whenever there is a reference recording."""
    speaker_embedding: int = 0
    """Its dimension; 0 where the model takes none."""
    x_vector: bool = False
    task_type: TaskType | None = None
    """The one that this checkpoint is for."""
    task_templates: dict[TaskType, str] = {}
    """Task types that stand for a prompt; `{input}` is the text."""
    non_streaming_mode: bool = False
    duration: Literal["none", "optional", "without_ref_audio"] = "none"
    """`without_ref_audio`: must be given when there is no reference."""
    word_timestamps: bool = False
    max_new_tokens: int = 0
    """Largest budget a caller may ask for; 0 where the model has none."""
    samples: bool = False
    """The model draws codes: `extra_params` takes the usual sampler keys."""
    extra: dict[str, ExtraParameter] = {}
    """Further keys of `extra_params`."""
    refused_fields: tuple[str, ...] = ()
    """Fields that the wire does not know and that are refused here, not ignored."""
    refused_input: str = ""
    """A regular expression; text in which it is found is refused."""

    @property
    def extra_parameters(self) -> dict[str, ExtraParameter]:
        """All keys that `extra_params` may hold."""
        return {**(SAMPLER_PARAMETERS if self.samples else {}), **self.extra}


class Segments(CardPart):
    """How long text is cut."""

    order: Literal["independent", "chained", "first_then_rest"] = "independent"
    history: Annotated[int, Field(ge=0)] = 0
    """How many segments before its own a chained model hears again."""
    max_chars: Annotated[int, Field(gt=0)]
    packed: bool = False
    """Sentences share a segment as long as it has room; else each has its own."""
    turn_tag: str = ""
    """Of packed text, a regular expression for what changes the speaker."""
    silence_ms: Annotated[int, Field(ge=0, le=2000)] = 120
    ahead: Annotated[int, Field(gt=0)] = 4
    """Segments that may be in work beyond the one that `finish` is joining."""
    unspeakable: str = ""
    """What a client is told when the model found nothing to say in all of the text. "" where silence is a failure."""


class StageCard(CardPart):
    """One stage and the log it writes."""

    name: str
    unit: Literal["codes", "pcm"]
    rate: Annotated[float, Field(gt=0)]
    """Frames or samples per second of the log."""
    dtype: str
    channels: Annotated[int, Field(gt=0)] = 1
    version: Annotated[int, Field(gt=0)] = 1
    """Payload version: a worker that does not know it leaves the task to one that does."""
    resume: Literal["restart", "replay"] = "restart"
    """`replay`: a resumed task needs what its log holds already, as a talker does."""
    slots: Annotated[int, Field(gt=0)]
    threads: Annotated[int, Field(gt=0)] = 1
    device: Literal["cpu", "cuda"] = "cpu"
    batch: Annotated[int, Field(ge=0)] = 0
    """Slots that one step takes at most; 0 for all that are ready."""
    live_chunks: tuple[int, ...] = ()
    bulk_chunk: int = 0


class EncodeCard(CardPart):
    """The stage that derives features from a reference recording, once for each recording and mode."""

    modes: Annotated[tuple[str, ...], Field(min_length=1)]
    """The first needs no transcript if one of them does not."""
    spoken_mode: str = ""
    """Of a recording with a transcript; "" for the first as well."""
    chosen_by: str = ""
    """Key of `extra_params` that names the mode."""
    slots: Annotated[int, Field(gt=0)] = 4
    threads: Annotated[int, Field(gt=0)] = 1
    device: Literal["cpu", "cuda"] = "cpu"
    version: Annotated[int, Field(gt=0)] = 1
    """Of the features' layout; part of their name in the store."""


class ModelCard(CardPart):
    """One served model."""

    id: str
    family: str
    own_weights: bool = False
    """The weights come with the package; otherwise a checkpoint is needed."""
    model_types: tuple[str, ...] = ()
    """What `config.json` of such a checkpoint calls itself."""
    config: dict[str, str] = {}
    """What else it says, where models of several cards call themselves the same."""
    owned_by: str
    created: int
    description: str
    licence: Licence
    sample_rate: int
    channels: int = 1
    languages: tuple[str, ...]
    language_tags: tuple[str, ...] = ()
    """Of all languages, in the same order, where the usual tags do not name them."""
    default_voice: str = ""
    """Of a request that names none; "" where the model does without."""
    voices: tuple[VoiceCard, ...] = ()
    parameters: Parameters
    segments: Segments
    stages: Annotated[tuple[StageCard, ...], Field(min_length=1)]
    encode: EncodeCard | None = None

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        names = [stage.name for stage in self.stages]
        if len(set(names)) != len(names):
            raise ValueError("two stages have the same name")
        if [stage.unit for stage in self.stages].count("pcm") != 1 or self.stages[-1].unit != "pcm":
            raise ValueError("exactly the last stage writes pcm")
        if self.default_voice and self.default_voice not in {voice.name for voice in self.voices}:
            raise ValueError(f"default voice {self.default_voice!r} is not among the voices")
        if self.language_tags and len(self.language_tags) != len(self.languages):
            raise ValueError("there are not as many language tags as languages")
        return self

    @property
    def stage_names(self) -> tuple[str, ...]:
        """Everything that workers run of it, `encode` included."""
        return (*(stage.name for stage in self.stages), *(["encode"] if self.encode else []))

    def stage(self, name: str) -> StageCard:
        """`encode` included. Raises KeyError for a stage that the model does not have."""
        for stage in self.stages:
            if stage.name == name:
                return stage
        if name == "encode" and self.encode is not None:
            shared = self.encode.model_dump(include={"slots", "threads", "device", "version"})
            return StageCard(name="encode", unit="codes", rate=1.0, dtype="features", **shared)
        raise KeyError(name)

    def voice(self, name: str | None) -> VoiceCard | None:
        """One of the model's own voices, case folded; nothing or `default` is its default."""
        wanted = (name or "default").casefold()
        if wanted == "default":
            wanted = self.default_voice.casefold()
        return next((voice for voice in self.voices if voice.name.casefold() == wanted), None)


def read_cards(family: dict[str, Any]) -> list[ModelCard]:
    """The cards of one parsed `model.toml`. Raises pydantic's ValidationError."""
    shared = {key: value for key, value in family.items() if key != "models"}
    return [ModelCard.model_validate(_merged(shared, own)) for own in family.get("models", [{}])]


def _merged(shared: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Tables are merged key by key; anything else of `own` replaces what is shared."""
    merged = dict(shared)
    for key, value in own.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merged(merged[key], value) if both else value
    return merged
