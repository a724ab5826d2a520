"""A model's card: what it is called, what it accepts and how it is staged. Plain data, no torch."""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Need = Literal["none", "optional", "required"]


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
    languages: tuple[str, ...]
    description: str = ""


class Speed(CardPart):
    """`native`: the model speaks faster or slower itself; `stretch`: the farm stretches its audio; `none`: neither."""

    by: Literal["native", "stretch", "none"] = "none"
    minimum: float = 1.0
    maximum: float = 1.0


class Parameters(CardPart):
    """What a request to this model may carry."""

    speed: Speed = Speed()
    instructions: Need = "none"
    language: bool = False
    ref_audio: Need = "none"
    ref_text: Need | Literal["with_ref_audio"] = "none"
    word_timestamps: bool = False
    max_new_tokens: int = 0
    """Largest budget a caller may ask for; 0 where the model has none."""


class Segments(CardPart):
    """How long text is cut."""

    order: Literal["independent", "chained", "first_then_rest"] = "independent"
    max_chars: Annotated[int, Field(gt=0)]
    silence_ms: Annotated[int, Field(ge=0, le=2000)] = 120
    ahead: Annotated[int, Field(gt=0)] = 4
    """Segments that may be in work beyond the one that `finish` is joining."""


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


class ModelCard(CardPart):
    """One served model."""

    id: str
    family: str
    owned_by: str
    created: int
    description: str
    licence: Licence
    sample_rate: int
    channels: int = 1
    languages: tuple[str, ...]
    default_voice: str
    voices: tuple[VoiceCard, ...]
    parameters: Parameters
    segments: Segments
    stages: Annotated[tuple[StageCard, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        names = [stage.name for stage in self.stages]
        if len(set(names)) != len(names):
            raise ValueError("two stages have the same name")
        if [stage.unit for stage in self.stages].count("pcm") != 1 or self.stages[-1].unit != "pcm":
            raise ValueError("exactly the last stage writes pcm")
        if self.default_voice not in {voice.name for voice in self.voices}:
            raise ValueError(f"default voice {self.default_voice!r} is not among the voices")
        return self

    def stage(self, name: str) -> StageCard:
        """Raises KeyError for a stage that the model does not have."""
        for stage in self.stages:
            if stage.name == name:
                return stage
        raise KeyError(name)

    def voice(self, name: str | None) -> VoiceCard | None:
        """The voice by its name, case folded; nothing or `default` is the model's own default."""
        wanted = (name or "default").casefold()
        if wanted == "default":
            wanted = self.default_voice.casefold()
        return next((voice for voice in self.voices if voice.name.casefold() == wanted), None)
