"""`/v1/audio/speech/stream`: the handshake, and what a WebSocket has of the farm (speech_api §2)."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, WebSocket
from redis.exceptions import RedisError

from speechmill.api.callers import SUBPROTOCOL_KEY, Caller, needs
from speechmill.api.errors import limited
from speechmill.api.farm import FarmState
from speechmill.api.listen import ended
from speechmill.api.realtime.channel import Channel, Disconnected
from speechmill.api.realtime.session import Session
from speechmill.api.speech.call import SpeechCall
from speechmill.api.speech.orders import Asker, Order, make_order, opened
from speechmill.infra.client import UNAVAILABLE
from speechmill.infra.keys import new_id
from speechmill.infra.quota import rise, sit

router = APIRouter()
ROUTE = "/v1/audio/speech/stream"
SEAT_S = 60.0
"""A socket of a process that died counts for so long."""


class FarmDesk:
    """Makes and speaks the orders of one client."""

    def __init__(self, farm: FarmState, caller: Caller, websocket: WebSocket) -> None:
        self._farm = farm
        self._caller = caller
        self._asker = Asker(farm, caller, websocket)

    async def order(self, fields: dict[str, Any], open_text: bool = False) -> Order:
        wanted = await make_order(self._asker, fields, "ws")
        return opened(wanted) if open_text else wanted

    def call(self, wanted: Order) -> SpeechCall:
        return SpeechCall(self._farm, wanted, ROUTE, self._caller)


@router.websocket(ROUTE)
async def stream(websocket: WebSocket, caller: Annotated[Caller, Depends(needs("speech"))]) -> None:
    """Text in while it is written, audio out while it is made, any number of utterances on one connection."""
    farm: FarmState = websocket.app.state.farm
    async with _seat(farm, caller):
        await websocket.accept(_subprotocol(websocket))
        with contextlib.suppress(Disconnected):
            code = await Session(Channel(websocket), FarmDesk(farm, caller, websocket)).run()
            await websocket.close(code)


@contextlib.asynccontextmanager
async def _seat(farm: FarmState, caller: Caller) -> AsyncIterator[None]:
    """One of the sockets that a key may have open, in all API processes together. Raises ApiError 429."""
    name, who, most = f"sockets:{caller.key}", new_id("ws"), farm.settings.limits.ws_per_key
    seated, _ = await farm.client.run(sit(name, who, most, SEAT_S))
    if not seated:
        raise limited("concurrency_limit_exceeded", f"this key has {most} sockets open already", 1.0, {})

    async def keep() -> None:
        while True:
            await asyncio.sleep(SEAT_S / 3)
            with contextlib.suppress(RedisError):
                await farm.client.run(sit(name, who, most, SEAT_S))

    keeping = asyncio.create_task(keep())
    try:
        yield
    finally:
        await ended(keeping)
        with contextlib.suppress(*UNAVAILABLE):
            await asyncio.shield(farm.client.run(rise(name, who)))


def _subprotocol(websocket: WebSocket) -> str | None:
    """The first that is offered, other than a key in the form of one."""
    offered: list[str] = websocket.scope.get("subprotocols", [])
    return next((name for name in offered if not name.startswith(SUBPROTOCOL_KEY)), None)
