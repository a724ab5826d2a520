"""Listeners of the load generators: a player at real-time pace, and the bare socket that feeds it."""

import asyncio
import time
from dataclasses import dataclass, field

RATE = 24_000


@dataclass(slots=True)
class Heard:
    """What one listener got. Its player begins with the first sound, and stands still where it runs dry."""

    first_s: float = 0.0
    """From asking to the first sound."""
    audio_s: float = 0.0
    gaps_s: list[float] = field(default_factory=list)
    """How long it stood still, each time."""
    complete: bool = False
    _began: float = 0.0
    _dry_at: float = 0.0

    def begin(self) -> None:
        self._began = time.perf_counter()

    def take(self, size: int) -> None:
        """So many bytes of PCM have come."""
        now, length_s = time.perf_counter(), size / 2 / RATE
        if not self.audio_s:
            self.first_s, self._dry_at = now - self._began, now
        if now > self._dry_at:
            self.gaps_s.append(now - self._dry_at)
        self._dry_at = max(self._dry_at, now) + length_s
        self.audio_s += length_s

    @property
    def waited_s(self) -> float:
        """Since `begin`."""
        return time.perf_counter() - self._began

    @property
    def longest_gap_s(self) -> float:
        return max(self.gaps_s, default=0.0)


async def ask(port: int, body: bytes, heard: Heard) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Send a request for speech."""
    heard.begin()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST /v1/audio/speech HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    writer.write(head.encode() + b"\r\n\r\n" + body)
    return reader, writer


async def by_http(port: int, body: bytes, heard: Heard) -> None:
    """A raw stream over a bare socket: the client must cost as little as it can."""
    reader, writer = await ask(port, body, heard)
    head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        return
    while size := int(await reader.readline(), 16):
        await reader.readexactly(size + 2)
        heard.take(size)
    heard.complete = True
    writer.close()
