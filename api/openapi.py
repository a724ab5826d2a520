"""The OpenAPI description: what FastAPI finds by itself, with the bodies and errors that routes read for themselves."""

from copy import deepcopy
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from speechmill.api.batches.schemas import BatchRequest
from speechmill.api.bulk.body import BulkBody
from speechmill.api.error_meanings import as_table
from speechmill.api.jobs.body import JobBody
from speechmill.api.realtime.description import OPERATION
from speechmill.api.realtime.routes import ROUTE as WEBSOCKET
from speechmill.api.speech.batch import BatchBody
from speechmill.api.speech.schemas import SpeechBody

_DESCRIPTION = """
Text to speech through a durable queue of workers. Works as it is with OpenAI's clients; `/compat/openai/v1` and
`/compat/openwebui/v1` are the same routes with the defaults that those clients expect. Errors have one shape:
`{"error": {"message", "type", "param", "code"}}`.
"""
_ERROR = {
    "type": "object",
    "description": f"### Codes\n\n{as_table()}",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "description": "What went wrong, in OpenAI's shape.",
            "examples": [{"message": "…", "type": "invalid_request_error", "param": "voice", "code": "invalid_voice"}],
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {
                    "type": "string",
                    "description": "For people; the words may change.",
                    "examples": ["there is no such voice"],
                },
                "type": {
                    "type": "string",
                    "description": "The kind of error, by its status.",
                    "examples": ["invalid_request_error"],
                },
                "param": {
                    "type": ["string", "null"],
                    "description": "The field at fault, dotted where it is nested; null where there is none.",
                    "examples": ["voice"],
                },
                "code": {
                    "type": "string",
                    "description": "For programs; each has its meaning below.",
                    "examples": ["invalid_voice"],
                },
            },
        }
    },
}
_ERROR_REF = {"schema": {"$ref": "#/components/schemas/Error"}}
_ANSWER = {"description": "An error", "content": {"application/json": _ERROR_REF}}
_OPEN = {"/health", "/health/ready", "/ping", "/version", "/metrics"}


def describe(app: FastAPI) -> None:
    """Have the app answer `/openapi.json` with the whole description."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _description(app)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # as FastAPI's documentation has it


def _description(app: FastAPI) -> dict[str, Any]:
    found = get_openapi(
        title=app.title, version=app.version, summary=app.summary, description=_DESCRIPTION, routes=app.routes
    )
    _, bodies = models_json_schema(
        [(body, "validation") for body in (SpeechBody, BatchBody, JobBody, BulkBody, BatchRequest)],
        ref_template="#/components/schemas/{model}",
    )
    parts = found.setdefault("components", {})
    schemas = parts.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas |= bodies["$defs"] | {"Error": _ERROR}
    parts["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    found["paths"][WEBSOCKET] = {"get": deepcopy(OPERATION)}
    for path, operations in found["paths"].items():
        for operation in operations.values():
            operation["responses"].pop("422", None)
            operation["responses"] |= {"4XX": _ANSWER, "5XX": _ANSWER}
            if path not in _OPEN:
                operation["security"] = [{"key": []}, {}]
    return found
