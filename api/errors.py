"""The one error object of every route, and which HTTP status belongs to which error."""

import math
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from redis.exceptions import OutOfMemoryError, RedisError
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, Response
from starlette.routing import Match
from starlette.types import Receive, Scope, Send

from speechmill.infra.errors import BadInput, FarmError, Overloaded, StoreUnavailable


class ApiError(Exception):
    """An answer that is an error. `param` is the field at fault, dotted where nested."""

    def __init__(self, status: int, code: str, message: str, param: str | None = None, **extra: Any) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.param = param
        self.extra = extra
        self.headers: dict[str, str] = {}
        self.beside: dict[str, Any] = {}
        """What stands next to the error object, where a client family looks for it."""


class StreamBroken(Exception):
    """Raised into the server after the headers are out, so that the connection is cut and not ended."""


_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "invalid_request_error",
    405: "invalid_request_error",
    408: "invalid_request_error",
    409: "conflict_error",
    410: "gone_error",
    413: "invalid_request_error",
    415: "invalid_request_error",
    416: "invalid_request_error",
    422: "invalid_request_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "overloaded_error",
    504: "timeout_error",
}
_METHODS = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")
_BY_CODE = {
    "invalid_value": 400,
    "generation_failed": 500,
    "internal_error": 500,
    "incomplete_generation": 500,
    "deadline_exceeded": 504,
    "first_audio_timeout": 504,
    "expired": 504,
}


def from_job(error: dict[str, Any], job: str) -> ApiError:
    """What a job's own error is to the one who waits for it."""
    code = str(error["code"])
    if code not in _BY_CODE:
        code = "internal_error"
    status = _BY_CODE[code]
    return ApiError(status, code, str(error["message"]), "input" if status == 400 else None, job_id=job)


def overloaded(error: Overloaded) -> ApiError:
    """503 with an honest wait."""
    return _later(ApiError(503, error.code, str(error)), max(error.retry_after_s, 0.5))


def limited(code: str, message: str, wait_s: float, headers: dict[str, str]) -> ApiError:
    """429 with the time after which it would be answered otherwise."""
    error = ApiError(429, code, message)
    error.headers = dict(headers)
    return _later(error, wait_s)


def _later(error: ApiError, wait_s: float) -> ApiError:
    wait_ms = math.ceil(wait_s * 1000)
    error.extra["retry_after_ms"] = wait_ms
    error.headers |= {"Retry-After": str(max(math.ceil(wait_s), 1)), "retry-after-ms": str(wait_ms)}
    return error


def error_object(error: ApiError) -> dict[str, Any]:
    """What stands under `error` in every answer that is one (speech_api §0.3)."""
    return {
        "message": error.message,
        "type": _TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "server_error"),
        "param": error.param,
        "code": error.code,
        **error.extra,
    }


def respond(error: ApiError) -> JSONResponse:
    """The error object, with the headers that steer the client's retries."""
    again = "true" if error.status in (429, 503) else "false"
    body = {"error": error_object(error), **error.beside}
    return JSONResponse(body, error.status, {"x-should-retry": again, **error.headers})


def _framework(error: HTTPException) -> ApiError:
    codes = {404: "not_found", 405: "method_not_allowed", 415: "unsupported_media_type"}
    code = codes.get(error.status_code, "internal_error" if error.status_code >= 500 else "invalid_value")
    answer = ApiError(error.status_code, code, str(error.detail) or HTTPStatus(error.status_code).phrase)
    answer.headers = dict(error.headers or {})
    return answer


def translate(error: Exception) -> ApiError:
    """Any exception as the answer that the client gets. What we did not foresee is a 500 without details."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, BadInput):
        return ApiError(400, error.code, str(error), error.param)
    if isinstance(error, Overloaded):
        return overloaded(error)
    if isinstance(error, OutOfMemoryError):
        return overloaded(Overloaded("the farm's memory is full", "out_of_memory", retry_after_s=5.0))
    if isinstance(error, RedisError | StoreUnavailable):
        return overloaded(Overloaded("the farm's storage does not answer", "no_workers", retry_after_s=2.0))
    if isinstance(error, FarmError):
        return ApiError(_BY_CODE.get(error.code, 500), error.code, str(error))
    if isinstance(error, HTTPException):
        return _framework(error)
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        code = "missing_required_parameter" if first["type"] == "missing" else "invalid_value"
        return ApiError(400, code, first["msg"], ".".join(str(part) for part in first["loc"][1:]) or None)
    return ApiError(500, "internal_error", "something went wrong on our side")


def _allowed(app: FastAPI, request: HTTPConnection) -> str:
    """Methods of a path; the router tells those of one route, and a path may have several."""
    asked = [(method, {**request.scope, "method": method}) for method in _METHODS]
    return ", ".join(
        method for method, scope in asked if any(route.matches(scope)[0] == Match.FULL for route in app.routes)
    )


def install(app: FastAPI) -> None:
    """Have every foreseen way to fail end in the error object."""

    async def handle(request: HTTPConnection, error: Exception) -> Response:
        answer = translate(error)
        if answer.code == "method_not_allowed":
            answer.headers["Allow"] = _allowed(app, request)
        return respond(answer)

    async def nowhere(scope: Scope, receive: Receive, send: Send) -> None:
        raise HTTPException(404)  # the router's own answer to a WebSocket has no body

    app.router.default = nowhere
    for kind in (ApiError, FarmError, RedisError, HTTPException, RequestValidationError):
        app.add_exception_handler(kind, handle)
