"""What one call takes from its key's limits, and the headers that tell what is left (speech_api §5.6)."""

import contextlib
import math
from collections.abc import AsyncIterator

from redis.exceptions import RedisError

from speechmill.api.callers import Caller
from speechmill.api.errors import ApiError, limited, translate
from speechmill.api.farm import FarmState
from speechmill.infra.errors import Overloaded
from speechmill.infra.quota import Charged, account, charge, rise, sit

_GRACE_S = 30.0
"""How long a seat outlives the call's own deadline, should this process die."""
_CROWDED_S = 1.0
_CODES = {"requests": "rate_limit_exceeded", "characters": "rate_limit_exceeded", "quota": "quota_exceeded"}


class Allowance:
    """`take` before anything is queued, `settle` at the end."""

    def __init__(self, farm: FarmState, caller: Caller, call: str, characters: int) -> None:
        self.headers: dict[str, str] = {}
        self._farm = farm
        self._caller = caller
        self._call = call
        self._characters = characters
        self._charged = False
        self._seated = False

    @property
    def _applies(self) -> bool:
        return any(self._caller.limits.model_dump().values())

    async def take(self, timeout_s: float) -> None:
        """Raises ApiError 429."""
        if self._applies:
            await self._sit(timeout_s)
        await self.charge()

    async def charge(self, requests: int = 1) -> None:
        """The same for what nobody waits for, which takes no seat. Raises ApiError 429."""
        if not self._applies:
            return
        call = charge(self._caller.key, self._caller.limits, requests, self._characters)
        charged = await self._farm.client.run(call)
        self.headers |= _left(self._caller, charged)
        if charged.verdict != "ok":
            raise limited(_CODES[charged.verdict], _message(charged.verdict), charged.wait_s, self.headers)
        self._charged = True

    async def charge_more(self, characters: int) -> None:
        """For text that came later. Raises ApiError 429."""
        if not self._applies:
            return
        charged = await self._farm.client.run(charge(self._caller.key, self._caller.limits, 0, characters))
        if charged.verdict != "ok":
            raise limited(_CODES[charged.verdict], _message(charged.verdict), charged.wait_s, self.headers)
        self._characters += characters

    async def _sit(self, timeout_s: float) -> None:
        most = self._caller.limits.concurrency
        if not most:
            return
        self._seated, taken = await self._farm.client.run(
            sit(f"calls:{self._caller.key}", self._call, most, timeout_s + _GRACE_S)
        )
        self.headers |= {
            "x-ratelimit-limit-concurrency": str(most),
            "x-ratelimit-remaining-concurrency": str(max(most - taken, 0)),
        }
        if not self._seated:
            message = "this key has as many calls open as it may"
            raise limited("concurrency_limit_exceeded", message, _CROWDED_S, self.headers)

    async def settle(self, accepted: bool, audio_s: float = 0.0) -> None:
        """Give back what a refused call took; count what a call has sent. A job's audio is counted at its end."""
        with contextlib.suppress(RedisError):  # a seat lapses by itself
            if self._seated:
                await self._farm.client.run(rise(f"calls:{self._caller.key}", self._call))
            if self._charged:
                back = 0 if accepted else self._characters
                await self._farm.client.run(account(self._caller.key, back, round(audio_s * 1000)))


@contextlib.asynccontextmanager
async def limits_told(farm: FarmState, caller: Caller) -> AsyncIterator[None]:
    """Errors within tell what is left of the key's limits.

    Raises ApiError 429 where nothing is left to take, so that a key cannot have recordings fetched and decoded for
    requests that will be refused.
    """
    headers = await standing(farm, caller)
    if headers.get("x-ratelimit-remaining-requests") == "0":
        wait_s = 60 / caller.limits.requests_per_minute
        raise limited(_CODES["requests"], _message("requests"), wait_s, headers)
    try:
        yield
    except (ApiError, Overloaded) as error:
        told = translate(error)
        told.headers = headers | told.headers
        raise told from None


async def standing(farm: FarmState, caller: Caller) -> dict[str, str]:
    """Headers for an answer that takes nothing."""
    if not any(caller.limits.model_dump().values()):
        return {}
    return _left(caller, await farm.client.run(charge(caller.key, caller.limits, 0, 0)))


def _message(verdict: str) -> str:
    if verdict == "quota":
        return "this key's quota of the day or month is used up"
    return f"this key has used up its {verdict} of this minute"


def _left(caller: Caller, charged: Charged) -> dict[str, str]:
    limits, headers = caller.limits, dict[str, str]()
    for name, limit, count, reset_s in (
        ("requests", limits.requests_per_minute, charged.requests_left, charged.requests_reset_s),
        ("characters", limits.characters_per_minute, charged.characters_left, charged.characters_reset_s),
    ):
        if count is not None:
            headers |= {
                f"x-ratelimit-limit-{name}": str(limit),
                f"x-ratelimit-remaining-{name}": str(count),
                f"x-ratelimit-reset-{name}": duration(reset_s),
            }
    return headers


def duration(seconds: float) -> str:
    """As OpenAI writes it: `1.5s`, `2m3s`."""
    if seconds < 60:
        return f"{math.ceil(seconds * 10) / 10:g}s"
    minutes, rest = divmod(math.ceil(seconds), 60)
    return f"{minutes}m{rest}s"
