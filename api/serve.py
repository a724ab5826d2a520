"""Runs the API in one process, with a graceful end: new work is refused while running streams finish."""

import asyncio
import logging
import socket
from types import FrameType

import uvicorn

from speechmill.api.app import create_app
from speechmill.api.farm import FarmState
from speechmill.api.http.connection import Connection
from speechmill.api.realtime.connection import WebSocketConnection
from speechmill.configs.settings import Settings
from speechmill.infra.connect import check_redis
from speechmill.infra.errors import ConfigError

log = logging.getLogger(__name__)
PING_S = 20.0
"""Between pings to a WebSocket client, and until its pong."""


class DrainingServer(uvicorn.Server):
    """The first SIGTERM starts the drain, the second ends at once."""

    def __init__(self, config: uvicorn.Config, farm: FarmState, drain_s: float) -> None:
        super().__init__(config)
        self._farm = farm
        self._drain_s = drain_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._drain: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._farm.draining or self._loop is None:
            super().handle_exit(sig, frame)
            return
        self._farm.draining = True
        self._loop.call_soon_threadsafe(self._start_drain, sig, frame)

    def _start_drain(self, sig: int, frame: FrameType | None) -> None:
        self._drain = asyncio.ensure_future(self._finish(sig, frame))

    async def _finish(self, sig: int, frame: FrameType | None) -> None:
        log.info("draining", extra={"streams": self._farm.listening.active})
        await self._farm.listening.quiet(self._drain_s)
        super().handle_exit(sig, frame)


def check_port(host: str, port: int) -> None:
    """Raises ConfigError when nobody could listen there."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            message = f"cannot listen on {host}:{port}: {error.strerror}; choose another with --port"
            raise ConfigError(message) from error


def run(settings: Settings) -> None:
    """Body of `speechmill api`."""
    check_port(settings.api.host, settings.api.port)
    check_redis(settings)
    app = create_app(settings)
    Connection.stalled_s = WebSocketConnection.stalled_s = settings.limits.stalled_client_s
    config = uvicorn.Config(
        app,
        http=Connection,
        ws=WebSocketConnection,
        ws_max_size=settings.limits.body_bytes,
        ws_ping_interval=PING_S,
        ws_ping_timeout=PING_S,
        ws_per_message_deflate=False,  # audio does not shrink, and it would be tried on the event loop
        host=settings.api.host,
        port=settings.api.port,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=5,
    )
    DrainingServer(config, app.state.farm, settings.api.drain_s).run()
