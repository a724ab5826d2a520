"""One upgraded connection of a client that may be slow, broken or hostile: what uvicorn itself does not limit."""

import asyncio
import logging
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

log = logging.getLogger(__name__)
log.setLevel(logging.WARNING)  # below that uvicorn tells queries, which may hold a key
POLICY = 1008
MAX_PONGS = 64
"""Answers to pings that wait behind what the client does not take."""


class WebSocketConnection(WebSocketsSansIOProtocol):
    """Closes the connection to a client that takes nothing, and cuts it off if it does not take even that.

    Its transport comes from `Connection`, which has it hold nothing beyond what the system takes.
    """

    stalled_s = 60.0
    _stall_timer: asyncio.TimerHandle | None = None
    _pongs = 0

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.logger = log
        self.conn.debug = False  # it would tell every message

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_watching()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._pongs = 0
        self._watch_progress()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_watching()

    def handle_ping(self) -> None:
        self._pongs += not self.writable.is_set()
        if self._pongs > MAX_PONGS:
            self.transport.abort()
        else:
            super().handle_ping()

    def keepalive_timeout(self) -> None:
        """No pong in time; a ping that waits behind what the client does not take cannot have one yet."""
        if self.writable.is_set() or self.ping_timeout is None:
            super().keepalive_timeout()
        else:
            self.pong_timer = self.loop.call_later(self.ping_timeout, self.keepalive_timeout)

    def _watch_progress(self) -> None:
        waiting = self.transport.get_write_buffer_size()
        self._stall_timer = self.loop.call_later(self.stalled_s, self._has_moved, waiting)

    def _stop_watching(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def _has_moved(self, before: int) -> None:
        if self.transport.get_write_buffer_size() >= before:
            if self.transport.is_closing():
                self.transport.abort()  # closing would wait for the client
                return
            self._close_stalled()
        self._watch_progress()

    def _close_stalled(self) -> None:
        reason = "the client takes no messages"
        self.queue.put_nowait({"type": "websocket.disconnect", "code": POLICY, "reason": reason})
        if not self.close_sent:
            self.conn.fail(POLICY, reason)
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.close_sent = True
        self.transport.close()
