"""What an API key has used and may still use, counted in Redis for all API processes together (speech_api §5.6)."""

import calendar
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from speechmill.configs.settings import KeyLimits
from speechmill.infra.protocol import Call


@dataclass(frozen=True, slots=True)
class Charged:
    """The answer to `charge`; what is not limited is None."""

    verdict: str
    """`ok`, or what is used up: `requests`, `characters` (of this minute) or `quota` (of a day or month)."""
    wait_s: float
    """Until the same charge could succeed."""
    requests_left: int | None
    requests_reset_s: float
    """Until all of them are there again."""
    characters_left: int | None
    characters_reset_s: float


def _periods(now: datetime) -> dict[str, int]:
    """Today and this month by name, with the seconds left of them (UTC)."""
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    day_ends = midnight + timedelta(days=1)
    month_ends = midnight.replace(day=1) + timedelta(days=calendar.monthrange(now.year, now.month)[1])
    ends = {now.strftime("%Y-%m-%d"): day_ends, now.strftime("%Y-%m"): month_ends}
    return {name: int((end - now).total_seconds()) + 1 for name, end in ends.items()}


def charge(key: str, limits: KeyLimits, requests: int, characters: int) -> Call[Charged]:
    """Take from what the key has left, all or nothing. Nothing at all (0, 0) only asks."""
    (day, day_s), (month, month_s) = _periods(datetime.now(UTC)).items()

    def parse(raw: list[Any]) -> Charged:
        verdict, wait, left, reset, characters_left, characters_reset = raw
        return Charged(verdict.decode(), wait / 1000, *_left(left, reset), *_left(characters_left, characters_reset))

    rates = (limits.requests_per_minute, limits.characters_per_minute)
    of_day = (day, day_s, limits.characters_per_day, limits.audio_seconds_per_day)
    of_month = (month, month_s, limits.characters_per_month, limits.audio_seconds_per_month)
    return Call("charge", (key, requests, characters, *rates, *of_day, *of_month), parse)


def _left(count: Any, reset_ms: Any) -> tuple[int | None, float]:
    return (None, 0.0) if count == b"" else (int(count), int(reset_ms) / 1000)


def account_of(key: str, limits: KeyLimits) -> tuple[str, ...]:
    """Where the audio of a job that is accepted now is counted at its end: the key and its periods; () for nowhere."""
    is_limited = limits.audio_seconds_per_day or limits.audio_seconds_per_month
    return (key, *_periods(datetime.now(UTC))) if is_limited else ()


def account(key: str, characters_back: int, audio_ms: int) -> Call[Any]:
    """Give characters back and count audio that was made."""
    return Call("account", (key, characters_back, audio_ms, *_periods(datetime.now(UTC))), lambda raw: raw)


def sit(name: str, who: str, most: int, ttl_s: float) -> Call[tuple[bool, int]]:
    """Take one of `most` seats, or keep it for longer. Answers whether there was one, and how many are taken."""
    return Call("sit", (name, who, most, int(ttl_s * 1000)), lambda raw: (raw[0] == 1, int(raw[1])))


def rise(name: str, who: str) -> Call[Any]:
    """Leave the seat."""
    return Call("rise", (name, who), lambda raw: raw)
