"""What idempotency keys stand for, in Redis for all API processes together (speech_api §5.4.8)."""

from dataclasses import dataclass
from typing import Any

from speechmill.infra.protocol import Call


@dataclass(frozen=True, slots=True)
class Begun:
    """`new` (the caller's to answer), `running` (somebody is at it), `reused` (for another body), or `done`."""

    verdict: str
    reply: bytes = b""


def begin_reply(scope: str, digest: str, holder: str, lapse_s: float) -> Call[Begun]:
    """Take a key for a body. Unless held on to, it counts as given up after `lapse_s`."""

    def parse(raw: list[Any]) -> Begun:
        return Begun(raw[0].decode(), *raw[1:])

    return Call("begin_reply", (scope, digest, holder, int(lapse_s * 1000)), parse)


def hold_reply(scope: str, holder: str, lapse_s: float) -> Call[str]:
    """The answer is still being made."""
    return Call("hold_reply", (scope, holder, int(lapse_s * 1000)), bytes.decode)


def put_reply(scope: str, holder: str, reply: bytes, ttl_s: int) -> Call[str]:
    """Every repetition gets this from now on."""
    return Call("put_reply", (scope, holder, reply, ttl_s), bytes.decode)


def drop_reply(scope: str, holder: str) -> Call[str]:
    """The answer is none to keep: whoever repeats the request asks anew."""
    return Call("drop_reply", (scope, holder), bytes.decode)
