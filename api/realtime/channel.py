"""A WebSocket as a session sees it: JSON objects and audio out, whole messages in."""

import json
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect


class Disconnected(Exception):
    """The client has closed the connection, or lost it."""


class Channel:
    """One client. A message is sent when the one before it is out, so that nothing piles up for a slow client."""

    def __init__(self, websocket: WebSocket) -> None:
        self._websocket = websocket

    async def receive(self) -> str | bytes:
        """The client's next message. Raises Disconnected."""
        message = await self._websocket.receive()
        if message["type"] == "websocket.disconnect":
            raise Disconnected
        text: str | None = message.get("text")
        return text if text is not None else bytes(message["bytes"])

    async def send(self, message: dict[str, Any] | bytes) -> None:
        """An object as text, or audio. Raises Disconnected."""
        try:
            if isinstance(message, bytes):
                await self._websocket.send_bytes(message)
            else:
                await self._websocket.send_text(json.dumps(message, ensure_ascii=False, separators=(",", ":")))
        except (WebSocketDisconnect, RuntimeError):  # RuntimeError: another task has met the end before
            raise Disconnected from None
