"""The request bodies of speech (speech_api §1.1, §5.1): every field that the wire knows, with its bounds.

Types are strict: a number is not a string and a boolean is not a number. What a model does not honour is refused by
`validate.py`, from the model's card.
"""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr

from speechmill.infra.segments import clean
from speechmill.models.card import TaskType

INT64 = 1 << 63
Number = Annotated[StrictFloat, Field(allow_inf_nan=False)]
"""An integer is a number; a boolean is not."""
AUDIO_FORMATS = ("wav", "mp3", "flac", "opus", "aac", "pcm")
SAMPLE_RATES = (8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000)
FLOAT32_MAX = 3.4028234663852886e38
"""Embeddings are kept and computed with in float32."""
NAME_CHARS = 256
METADATA_PAIRS = 16


class VoiceObject(BaseModel):
    """The OpenAI SDK may send a voice as an object."""

    model_config = ConfigDict(extra="ignore")
    id: Annotated[StrictStr, Field(max_length=NAME_CHARS, description="Name or id of a voice.", examples=["heart"])]


class Reference(BaseModel):
    """A reference recording with its transcript, in one."""

    model_config = ConfigDict(extra="ignore")
    audio_path: Annotated[
        StrictStr, Field(description="As `ref_audio`.", examples=["https://example.com/speaker.wav"])
    ]
    text: Annotated[
        StrictStr | None, Field(max_length=2000, description="As `ref_text`.", examples=["This is how I sound."])
    ] = None


def _described(text: str, *examples: Any, **bounds: Any) -> Any:
    return Field(description=text, examples=list(examples), **bounds)


class SpeechOptions(BaseModel):
    """How to speak: everything but the text itself."""

    model_config = ConfigDict(extra="allow")

    model: Annotated[
        StrictStr | None,
        _described("Model id or alias. May be left out where one model is served.", "hibari", max_length=NAME_CHARS),
    ] = None
    voice: Annotated[
        Annotated[StrictStr, Field(max_length=NAME_CHARS)] | VoiceObject | None,
        _described("Name or id of a voice; `default` or nothing: the model's own.", "default", {"id": "heart"}),
    ] = None
    speaker: Annotated[StrictStr | None, _described("Another name for `voice`.", "heart", max_length=NAME_CHARS)] = None
    instructions: Annotated[
        Annotated[StrictStr, AfterValidator(clean)] | None,
        _described("How to speak, in words, for models that follow it.", "Calm and slow."),
    ] = None
    response_format: Annotated[
        StrictStr | None,
        _described("wav, mp3, flac, opus, aac or pcm, in any case. Nothing: by profile, else wav.", "wav", "mp3"),
    ] = None
    sample_rate: Annotated[
        StrictInt | None,
        _described("Hz: 8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000 or the model's own rate.", 24000),
    ] = None
    speed: Annotated[Number | None, _described("Tempo at the same pitch.", 1.0, ge=0.25, le=4.0)] = None
    stream: Annotated[StrictBool | None, _described("true: server-sent events while audio is made.", False)] = None
    stream_format: Annotated[
        Literal["audio", "sse"] | None,
        _described("`audio`: raw bytes of the format while they are made; `sse`: events with base64.", "audio"),
    ] = None
    task_type: Annotated[TaskType | None, _described("For checkpoints made for one task.", "CustomVoice")] = None
    language: Annotated[
        StrictStr | None, _described("Language name or BCP-47 tag; `Auto` or nothing: found out.", "en", max_length=64)
    ] = None
    ref_audio: Annotated[
        StrictStr | list[StrictStr] | None,
        _described(
            "Recording of the voice to speak with: a URL, a data URL, base64 or the id of an uploaded file.",
            "https://example.com/speaker.wav",
        ),
    ] = None
    ref_text: Annotated[
        StrictStr | None, _described("What is said in `ref_audio`.", "This is how I sound.", max_length=2000)
    ] = None
    references: Annotated[
        list[Reference] | None,
        _described("Exactly one; stands for `ref_audio` and `ref_text`.", [{"audio_path": "https://…", "text": "…"}]),
    ] = None
    x_vector_only_mode: Annotated[
        StrictBool | None, _described("Take the speaker's timbre only; no transcript is needed.", True)
    ] = None
    speaker_embedding: Annotated[
        list[Number] | None,
        _described("The speaker as a vector instead of a recording.", [0.01, -0.02], min_length=1, max_length=8192),
    ] = None
    max_new_tokens: Annotated[StrictInt | None, _described("Codec frames of each segment at most.", 2048, ge=1)] = None
    seed: Annotated[
        StrictInt | None,
        _described("Same seed, same audio. Nothing: drawn, and told in `X-Seed`.", 7, ge=-INT64, lt=INT64),
    ] = None
    initial_codec_chunk_frames: Annotated[
        StrictInt | None, _described("Codec frames in the first chunk of a stream.", 4, ge=0)
    ] = None
    non_streaming_mode: Annotated[StrictBool | None, _described("Form of the prompt; not of the answer.", False)] = None
    extra_params: Annotated[
        dict[str, Any] | None,
        _described("Parameters of the model, such as `temperature`; see `/v1/models`.", {"temperature": 0.8}),
    ] = None
    duration_seconds: Annotated[Number | None, _described("Length of the audio to make.", 6.5, gt=0, le=300)] = None
    word_timestamps: Annotated[StrictBool | None, _described("When each word is spoken.", True)] = None
    split_text: Annotated[
        Literal["auto", "none"] | None, _described("`none`: refuse a text that needs cutting.", "auto")
    ] = None
    segment_silence_ms: Annotated[
        StrictInt | None, _described("Pause between the pieces of a long text.", 120, ge=0, le=2000)
    ] = None
    priority: Annotated[
        Literal["interactive", "normal", "batch"] | None, _described("Capped by the key.", "interactive")
    ] = None
    timeout_seconds: Annotated[Number | None, _described("Wall limit of the call.", 600, ge=1, le=3600)] = None
    store: Annotated[StrictBool | None, _described("Keep the result; go on if the client leaves.", False)] = None
    metadata: Annotated[
        dict[Annotated[str, Field(max_length=64)], Annotated[StrictStr, Field(max_length=512)]] | None,
        _described("Up to 16 pairs, copied to the job.", {"chapter": "1"}, max_length=METADATA_PAIRS),
    ] = None
    ref_audio_2: Annotated[Any, _described("No model here takes a second reference.", None)] = None
    ambient_sound: Annotated[Any, _described("No model here takes it.", None)] = None


class SpeechBody(SpeechOptions):
    """Text to speak, and how."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "examples": [
                {"input": "Hello there.", "voice": "default", "response_format": "wav"},
                {"input": "Hello there.", "stream_format": "audio", "response_format": "pcm"},
                {"input": "Hello there.", "stream": True, "response_format": "mp3"},
            ]
        },
    )

    input: Annotated[StrictStr, _described("The text to speak; 1 to 16384 characters.", "Hello there.")]
