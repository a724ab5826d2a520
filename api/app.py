"""Puts the routes together. Stateless: any number of these may serve one farm."""

import contextlib
import logging
from collections.abc import AsyncIterator

from fastapi import FastAPI

from speechmill.api import errors, files, ops
from speechmill.api.batches import routes as batches
from speechmill.api.bulk import routes as bulk
from speechmill.api.farm import FarmState
from speechmill.api.http.idempotency import Idempotency
from speechmill.api.http.middleware import Cors, LastResort, RequestId
from speechmill.api.http.profiles import CompatPaths
from speechmill.api.jobs import routes as jobs
from speechmill.api.openapi import describe
from speechmill.api.page import routes as page
from speechmill.api.realtime import routes as realtime
from speechmill.api.speech import batch, bridge
from speechmill.api.speech import routes as speech
from speechmill.api.voices import consents
from speechmill.api.voices import routes as voices
from speechmill.api.webhooks import deliveries, endpoints
from speechmill.configs.settings import Settings


class _Quiet(logging.Filter):
    """A stream that is cut on purpose is no server error."""

    def filter(self, record: logging.LogRecord) -> bool:
        cause = record.exc_info[1] if record.exc_info else None
        return not isinstance(cause, errors.StreamBroken)


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
        docs_url=None,
        redoc_url=None,
    )
    app.state.farm = farm
    errors.install(app)
    parts = [speech, batch, realtime, voices, consents, files, endpoints, deliveries, jobs, bulk, batches, ops]
    if settings.api.elevenlabs:
        parts.append(bridge)
    if settings.api.page:
        parts.append(page)
    for part in parts:
        app.include_router(part.router)
    describe(app)
    app.add_middleware(Idempotency)
    app.add_middleware(CompatPaths)
    app.add_middleware(LastResort)
    app.add_middleware(Cors, settings=settings)
    app.add_middleware(RequestId)
    return app
