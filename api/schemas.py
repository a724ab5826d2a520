"""The request body of `POST /v1/audio/speech` (speech_api §1.1): every field that the wire knows, with its bounds.

Types are strict: a number is not a string and a boolean is not a number. What a model does not honour is refused by
`validate.py`, from the model's card.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr

INT64 = 1 << 63
Number = StrictInt | StrictFloat
AUDIO_FORMATS = ("wav", "mp3", "flac", "opus", "aac", "pcm")
SAMPLE_RATES = (8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000)


class VoiceObject(BaseModel):
    """The OpenAI SDK may send a voice as an object."""

    model_config = ConfigDict(extra="ignore")
    id: Annotated[StrictStr, Field(max_length=256)]


class SpeechBody(BaseModel):
    """Text to speak, and how."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "examples": [
                {"input": "Hello there.", "voice": "default", "response_format": "wav"},
                {"input": "Hello there.", "stream": True, "stream_format": "audio", "response_format": "pcm"},
            ]
        },
    )

    input: Annotated[StrictStr, Field(description="The text to speak; 1 to 16384 characters.")]
    model: Annotated[
        StrictStr | None, Field(max_length=256, description="Model id. May be left out where one model is served.")
    ] = None
    voice: Annotated[
        StrictStr | VoiceObject | None, Field(description="Voice name; `default` or nothing: the model's own.")
    ] = None
    speaker: Annotated[StrictStr | None, Field(max_length=256, description="Another name for `voice`.")] = None
    instructions: Annotated[StrictStr | None, Field(description="How to speak, for models that follow it.")] = None
    response_format: Annotated[
        StrictStr | None, Field(description="wav (default), pcm, mp3, flac, opus or aac; any case.")
    ] = None
    sample_rate: Annotated[StrictInt | None, Field(description="Hz; nothing: the model's own rate.")] = None
    speed: Annotated[Number | None, Field(ge=0.25, le=4.0, description="Tempo at the same pitch.")] = None
    stream: Annotated[StrictBool | None, Field(description="Send audio while it is made.")] = None
    stream_format: Annotated[Literal["audio", "sse"] | None, Field(description="`audio`: raw bytes of the format.")] = (
        None
    )
    task_type: Literal["CustomVoice", "VoiceDesign", "Base"] | None = None
    language: Annotated[StrictStr | None, Field(max_length=64, description="Language name or BCP-47 tag.")] = None
    ref_audio: StrictStr | list[StrictStr] | None = None
    ref_text: Annotated[StrictStr | None, Field(max_length=2000)] = None
    references: list[dict[str, Any]] | None = None
    x_vector_only_mode: StrictBool | None = None
    speaker_embedding: list[Number] | None = None
    max_new_tokens: Annotated[StrictInt | None, Field(ge=1, description="Budget of codec frames.")] = None
    seed: Annotated[
        StrictInt | None, Field(ge=-INT64, lt=INT64, description="Same seed, same audio. Nothing: drawn, see `X-Seed`.")
    ] = None
    initial_codec_chunk_frames: Annotated[StrictInt | None, Field(ge=0)] = None
    non_streaming_mode: StrictBool | None = None
    extra_params: dict[str, Any] | None = None
    duration_seconds: Annotated[Number | None, Field(gt=0, le=300)] = None
    word_timestamps: Annotated[StrictBool | None, Field(description="Times of words, in a header.")] = None
    split_text: Annotated[
        Literal["auto", "none"] | None, Field(description="`none`: refuse text that needs cutting.")
    ] = None
    segment_silence_ms: Annotated[
        StrictInt | None, Field(ge=0, le=2000, description="Pause between the pieces of a long text.")
    ] = None
    priority: Literal["interactive", "normal", "batch"] | None = None
    timeout_seconds: Annotated[Number | None, Field(ge=1, le=3600, description="Wall limit of the call.")] = None
    store: Annotated[StrictBool | None, Field(description="Keep the result, and go on if the client leaves.")] = None
    metadata: dict[str, Any] | None = None
    ref_audio_2: Any = None
    ambient_sound: Any = None
