"""When an HTTP client leaves."""

from starlette.types import Receive


async def disconnected(receive: Receive) -> None:
    """Return once the client has closed the connection. What is still unread of its body is dropped."""
    while (await receive())["type"] != "http.disconnect":
        pass
