"""Puts the routes together. Stateless: any number of these may serve one farm."""

import contextlib
import logging
import re
import traceback
from collections.abc import AsyncIterator

from fastapi import FastAPI
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from speechmill.api import errors, ops, speech
from speechmill.api.farm import FarmState
from speechmill.configs.settings import Settings
from speechmill.infra.keys import new_id

log = logging.getLogger(__name__)
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")


class Outermost:
    """Every answer carries `X-Request-Id`: the caller's own if it is well formed, else a new one.

    What no handler foresaw ends here, so that it is an answer like any other.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else new_id("req")
        started = False

        async def stamped(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                MutableHeaders(scope=message)["X-Request-Id"] = request_id
            await send(message)

        try:
            await self._app(scope, receive, stamped)
        except Exception as failure:
            if not isinstance(failure, speech.StreamBroken):
                _report(failure, scope["path"], request_id)
            if started:
                raise speech.StreamBroken from None  # told already; the server only has to cut the connection
            await errors.respond(errors.translate(failure))(scope, receive, stamped)


def _report(failure: Exception, path: str, request_id: str) -> None:
    """Where it went wrong, without the exception's own words: they may quote what a user wrote."""
    where = "".join(traceback.format_tb(failure.__traceback__))
    extra = {"path": path, "request_id": request_id, "error": type(failure).__name__, "trace": where}
    log.error("request failed", extra=extra)


class _Quiet(logging.Filter):
    """A stream that is cut on purpose is no server error."""

    def filter(self, record: logging.LogRecord) -> bool:
        cause = record.exc_info[1] if record.exc_info else None
        return not isinstance(cause, speech.StreamBroken)


def create_app(settings: Settings) -> FastAPI:
    """The whole HTTP API for one farm."""
    logging.getLogger("uvicorn.error").addFilter(_Quiet())
    farm = FarmState(settings)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await farm.start()
        yield
        await farm.stop()

    app = FastAPI(
        title="Speechmill",
        version=ops.build()["version"],
        summary="Text to speech through a durable worker farm, with an OpenAI-compatible API.",
        lifespan=lifespan,
        redirect_slashes=False,
    )
    app.state.farm = farm
    errors.install(app)
    app.include_router(speech.router)
    app.include_router(ops.router)
    app.add_middleware(Outermost)
    return app
