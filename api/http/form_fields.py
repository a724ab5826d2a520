"""Text fields of multipart forms with their bounds, and how OpenAPI shows such a form."""

from typing import Any

from starlette.datastructures import FormData

from speechmill.api.errors import ApiError
from speechmill.api.http.multipart import text_field


def required_text(form: FormData, field: str, most: int) -> str:
    """Of 1 to `most` characters. Raises ApiError 400 `missing_required_parameter`, `invalid_value`."""
    text = optional_text(form, field, most)
    if not text:
        raise ApiError(400, "missing_required_parameter", f"{field} is required", field)
    return text


def optional_text(form: FormData, field: str, most: int) -> str:
    """ "" where it is missing or blank. Raises ApiError 400 `invalid_value`."""
    text = text_field(form, field) or ""
    if len(text) > most:
        raise ApiError(400, "invalid_value", f"{field} has {len(text)} characters; at most {most} are taken", field)
    return text


def form_schema(required: tuple[str, ...], **fields: dict[str, Any]) -> dict[str, Any]:
    """`openapi_extra` of a route that takes a form of these fields, which are texts unless they say otherwise."""
    schema = {
        "type": "object",
        "required": list(required),
        "properties": {name: {"type": "string"} | field for name, field in fields.items()},
    }
    return {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": schema}}}}
