"""Voices and consents over HTTP, on the real servers, with every model's card and no worker."""

import asyncio
import io
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import numpy as np
import soundfile

from speechmill.api.app import create_app
from speechmill.api.callers import Caller
from speechmill.api.voices.resolve import ResolvedVoice, resolve_voice
from speechmill.configs.settings import Settings
from speechmill.infra.client import Client
from speechmill.infra.keys import Keys

CUSTOM = "Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice"
BASE = "Qwen/Qwen3-TTS-12Hz-1.7B-Base"
SMALL_BASE = "Qwen/Qwen3-TTS-12Hz-0.6B-Base"
FISH = "fishaudio/s2-pro"
KEYS = {"a": "sk-a", "b": "sk-b", "reader": "sk-reader", "speaker": "sk-speaker"}
PATH = "/v1/audio/voices"
CONSENTS = "/v1/audio/voice_consents"
Part = tuple[str, tuple[str | None, bytes | str, str] | tuple[None, str]]


def wav(seconds: float = 1.5, rate: int = 8000, channels: int = 1, container: str = "WAV") -> bytes:
    tone = 0.3 * np.sin(2 * np.pi * 220 * np.arange(int(seconds * rate)) / rate)
    file = io.BytesIO()
    soundfile.write(file, np.repeat(tone[:, None], channels, 1), rate, format=container)
    return file.getvalue()


WAV = wav()
TEXT_FILE = ("a.txt", WAV, "text/plain")


def form(**fields: Any) -> list[Part]:
    """A good form for a voice, changed by `fields` as `parts` takes them."""
    return parts({"name": "Alice", "consent": "yes", "audio_sample": WAV} | fields)


def parts(fields: dict[str, Any]) -> list[Part]:
    """Of a form: a text, bytes of a WAV, a whole file part, or None to leave the field out."""
    parts: list[Part] = []
    for name, value in fields.items():
        if isinstance(value, bytes):
            parts.append((name, ("a.wav", value, "audio/wav")))
        elif value is not None:
            parts.append((name, value if isinstance(value, tuple) else (None, value)))
    return parts


class Server:
    """One API process."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.app = create_app(settings)
        self.farm = self.app.state.farm
        self.objects = self.farm.objects
        self.client = Client(settings.redis.control_url, settings.redis.control_url, Keys(settings.redis.prefix))

    def run(self, talk: Callable[[], Awaitable[None]]) -> None:
        async def main() -> None:
            await self.farm.start()
            try:
                await talk()
            finally:
                await self.farm.stop()

        asyncio.run(main())

    async def ask(self, method: str, path: str, key: str | None = "a", **options: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {KEYS[key]}"} if key else {}
        transport = httpx.ASGITransport(self.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test", headers=headers) as client:
            return await client.request(method, path, **options)

    async def upload(self, key: str = "a", **fields: Any) -> httpx.Response:
        return await self.ask("POST", PATH, key, files=form(**fields))

    async def agree(self, **fields: Any) -> httpx.Response:
        """Upload a good consent, changed by `fields`."""
        return await self.ask(
            "POST", CONSENTS, files=parts({"name": "Ann", "language": "en-GB", "recording": WAV} | fields)
        )

    async def listed(self, key: str | None = "a", **query: Any) -> dict[str, Any]:
        answer = await self.ask("GET", PATH, key, params=query)
        assert answer.status_code == 200
        body: dict[str, Any] = answer.json()
        return body


def stands_for(answer: httpx.Response) -> tuple[int, str, str | None]:
    error = answer.json()["error"]
    return answer.status_code, error["code"], error["param"]


async def resolve(server: Server, model: str, name: str, project: str = "a") -> ResolvedVoice | None:
    card = next(card for card in server.farm.models if card.id == model)
    caller = Caller(project, "key", frozenset({"speech"}))
    return await resolve_voice(server.farm, caller, card, name)


async def resolved(server: Server, model: str, name: str) -> ResolvedVoice:
    found = await resolve(server, model, name)
    assert found is not None
    return found
