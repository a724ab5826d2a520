"""What surrounds every route: a request id, an answer for what nobody foresaw, and cross-origin rules."""

import logging
import re
import time
import traceback

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from speechmill.api import errors
from speechmill.api.callers import auth_enabled
from speechmill.configs.settings import Settings
from speechmill.infra.keys import new_id

log = logging.getLogger(__name__)
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_UNLOGGED = frozenset({"/health", "/health/ready", "/ping", "/metrics"})
_STARTS = ("http.response.start", "websocket.accept", "websocket.http.response.start")


class RequestId:
    """Every answer carries `X-Request-Id`: the caller's own if it is well formed, else a new one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else new_id("req")

        status, began = 0, time.monotonic()

        async def stamped(message: Message) -> None:
            nonlocal status
            if message["type"] in _STARTS:
                message.setdefault("headers", [])
                MutableHeaders(scope=message)["X-Request-Id"] = request_id
                status = message.get("status", 101)
            await send(message)

        try:
            await self._app({**scope, "speechmill.request_id": request_id}, receive, stamped)
        finally:
            if scope["path"] not in _UNLOGGED:
                facts = {"method": scope.get("method", "WEBSOCKET"), "route": _route(scope["path"]), "status": status}
                took = round(time.monotonic() - began, 3)
                log.info("answered", extra={"request_id": request_id, **facts, "s": took})


def _route(path: str) -> str:
    """The path without what users chose: names of voices stand behind the third part."""
    parts = path.split("/")
    return "/".join(parts[:4]) + ("/…" if len(parts) > 4 else "")


class LastResort:
    """What no handler foresaw is an answer like any other; its cause is logged."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        started = False

        async def noted(message: Message) -> None:
            nonlocal started
            started = started or message["type"] in _STARTS
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except Exception as failure:
            if not isinstance(failure, errors.StreamBroken):
                _report(failure, scope["path"], scope["speechmill.request_id"])
            if not started:
                await errors.respond(errors.translate(failure))(scope, receive, send)
            elif scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1011})
            else:
                raise errors.StreamBroken from None  # told already; the server only has to cut the connection


def _report(failure: Exception, path: str, request_id: str) -> None:
    """Where it went wrong, without the exception's own words: they may quote what a user wrote."""
    where = "".join(traceback.format_tb(failure.__traceback__))
    extra = {"path": path, "request_id": request_id, "error": type(failure).__name__, "trace": where}
    log.error("request failed", extra=extra)


class Cors:
    """Which pages of a browser may call, and read what (speech_api §5.6). Cookies never play a part."""

    methods = "GET, POST, DELETE, OPTIONS"
    allowed = (
        "Authorization, Content-Type, Idempotency-Key, Last-Event-ID, If-None-Match, X-Request-Id, X-Strict-Params, "
        "X-API-Key, xi-api-key"
    )
    exposed = (
        "X-Request-Id, X-Sample-Rate, X-Channels, X-Sample-Format, X-Audio-Duration-Ms, X-Finish-Reason, X-Job-Id, "
        "X-Model, X-Voice, X-Seed, X-Ignored-Params, X-Word-Timestamps, X-Word-Timestamps-Omitted, "
        "x-vllm-omni-input-tokens, x-vllm-omni-output-tokens, x-vllm-omni-total-tokens, "
        "x-vllm-omni-input-text-tokens, x-vllm-omni-input-audio-tokens, X-Start-Frame, Server-Timing, ETag, "
        "Location, Content-Range, Idempotent-Replayed, Retry-After, retry-after-ms, x-should-retry, "
        "x-ratelimit-limit-requests, x-ratelimit-remaining-requests, x-ratelimit-reset-requests, "
        "x-ratelimit-limit-characters, x-ratelimit-remaining-characters, x-ratelimit-reset-characters, "
        "x-ratelimit-limit-concurrency, x-ratelimit-remaining-concurrency"
    )
    max_age_s = "600"
    _local = re.compile(r"https?://(localhost|127\.0\.0\.1)(:\d+)?")

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._origins = settings.cors.allow_origins
        self._anywhere = "*" in self._origins or (not self._origins and auth_enabled(settings))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        origin = headers.get("origin", "")
        answer = self._answer(origin)
        if scope.get("method") == "OPTIONS" and "access-control-request-method" in headers:
            asked = headers.get("access-control-request-headers", "")
            await send(self._preflight(answer, asked))
            await send({"type": "http.response.body", "body": b""})
            return

        async def shared(message: Message) -> None:
            if message["type"] == "http.response.start":
                message.setdefault("headers", [])
                MutableHeaders(scope=message).update(answer)
            await send(message)

        if self._is_foreign(origin, headers.get("host", "")) and scope.get("method") not in ("GET", "HEAD"):
            refusal = errors.ApiError(403, "permission_denied", "pages of this origin may not call here")
            await errors.respond(refusal)(scope, receive, shared)
            return
        await self._app(scope, receive, shared)

    def _is_foreign(self, origin: str, host: str) -> bool:
        """A page that the rules name nowhere. Browsers send forms and open WebSockets without asking first, and where
        no keys are asked for, that is all it would take.
        """
        own = origin.partition("://")[2] == host
        return bool(origin) and not own and "Access-Control-Allow-Origin" not in self._answer(origin)

    def _answer(self, origin: str) -> dict[str, str]:
        if not origin:
            return {}
        if self._anywhere:
            return {"Access-Control-Allow-Origin": "*", "Access-Control-Expose-Headers": self.exposed}
        told = {"Vary": "Origin"}
        if origin in self._origins or (not self._origins and self._local.fullmatch(origin)):
            told |= {"Access-Control-Allow-Origin": origin, "Access-Control-Expose-Headers": self.exposed}
        return told

    def _preflight(self, answer: dict[str, str], asked: str) -> Message:
        if "Access-Control-Allow-Origin" in answer:
            stainless = [name.strip() for name in asked.split(",") if name.strip().lower().startswith("x-stainless-")]
            answer = answer | {
                "Access-Control-Allow-Methods": self.methods,
                "Access-Control-Allow-Headers": ", ".join([self.allowed, *stainless]),
                "Access-Control-Max-Age": self.max_age_s,
            }
        headers = [(name.lower().encode(), value.encode("latin-1", "replace")) for name, value in answer.items()]
        return {"type": "http.response.start", "status": 204, "headers": headers}
