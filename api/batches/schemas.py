"""What a batch is asked for with, and the lines of its file (speech_api §5.3)."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr

from speechmill.api.speech.schemas import METADATA_PAIRS

ENDPOINT = "/v1/audio/speech"


class OutputExpiry(BaseModel):
    """When the files that a batch makes may go."""

    model_config = ConfigDict(extra="forbid")
    anchor: Annotated[
        Literal["created_at"], Field(description="What the seconds count from.", examples=["created_at"])
    ]
    seconds: Annotated[StrictInt, Field(ge=3_600, le=2_592_000, description="How long they stay.", examples=[86_400])]


class BatchRequest(BaseModel):
    """A file of requests that are spoken within a day."""

    model_config = ConfigDict(extra="allow")
    input_file_id: Annotated[
        StrictStr, Field(max_length=64, description="A file uploaded for `batch`.", examples=["file-01JEXAMPLE"])
    ]
    endpoint: Annotated[Literal["/v1/audio/speech"], Field(description="Of every line.", examples=[ENDPOINT])]
    completion_window: Annotated[Literal["24h"], Field(description="There is no other.", examples=["24h"])]
    metadata: Annotated[
        dict[Annotated[str, Field(max_length=64)], Annotated[StrictStr, Field(max_length=512)]] | None,
        Field(
            max_length=METADATA_PAIRS,
            description="Up to 16 pairs; `audio_delivery`: `inline` puts short audio into the output as base64.",
            examples=[{"book": "7"}],
        ),
    ] = None
    output_expires_after: Annotated[
        dict[str, Any] | None,
        Field(
            description="`anchor` and `seconds`. Nothing: 30 days.",
            examples=[{"anchor": "created_at", "seconds": 86_400}],
        ),
    ] = None


class BatchLine(BaseModel):
    """One line of a batch's file."""

    model_config = ConfigDict(extra="allow")
    custom_id: Annotated[StrictStr, Field(min_length=1, max_length=512)]
    method: Literal["POST"]
    url: Literal["/v1/audio/speech"]
    body: dict[str, Any]
