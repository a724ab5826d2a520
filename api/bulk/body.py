"""The body of a bulk `POST /v1/audio/jobs` (speech_api §5.4.1)."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

OnInvalid = Literal["reject_all", "skip"]


class BulkBody(BaseModel):
    """Jobs that are accepted together."""

    model_config = ConfigDict(extra="allow")

    defaults: Annotated[
        dict[str, Any] | None,
        Field(description="Fields of every `request`; what it says for itself wins.", examples=[{"voice": "heart"}]),
    ] = None
    requests: Annotated[
        list[Any],
        Field(
            description="1 to 10000 bodies of a single job.",
            examples=[[{"custom_id": "a", "request": {"input": "One."}}]],
        ),
    ]
    on_invalid: Annotated[
        OnInvalid | None,
        Field(description="`reject_all`, or `skip` what is not valid and take the rest.", examples=["skip"]),
    ] = None
