"""Signatures of Standard Webhooks 1.0, symmetric (speech_api §5.5)."""

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable, Mapping

PREFIX = "whsec_"
SECRET_BYTES = 32
TOLERANCE_S = 300
"""How far a sender's clock may be off; what is older may be somebody's recording."""
_SECONDS = re.compile(r"[0-9]{1,12}")


class BadSignature(Exception):
    """The text says what is wrong, and may be shown."""


def new_secret() -> str:
    """`whsec_` and 32 random bytes in base64."""
    return PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def sign(keys: Iterable[str], message_id: str, timestamp: int, body: bytes) -> str:
    """The `webhook-signature` header: one signature for each secret. `timestamp` in Unix seconds."""
    return " ".join(_signature(key, message_id, str(timestamp), body) for key in keys)


def verify(secret: str, headers: Mapping[str, str], body: bytes, now: float) -> None:
    """Check a message as it was received; header names are in lower case. Raises BadSignature."""
    missing = [name for name in ("webhook-id", "webhook-timestamp", "webhook-signature") if not headers.get(name)]
    if missing:
        raise BadSignature(f"the header {missing[0]} is missing")
    timestamp = headers["webhook-timestamp"]
    if not _SECONDS.fullmatch(timestamp) or abs(now - int(timestamp)) > TOLERANCE_S:
        raise BadSignature(f"the timestamp is not within {TOLERANCE_S} s of now")
    wanted = _signature(secret, headers["webhook-id"], timestamp, body).encode()
    given = headers["webhook-signature"].encode().split(b" ")
    if not any(hmac.compare_digest(wanted, one) for one in given):
        raise BadSignature("the signature is not made with this secret, or the body was changed")


def _signature(secret: str, message_id: str, timestamp: str, body: bytes) -> str:
    key = base64.b64decode(secret.removeprefix(PREFIX))
    content = b".".join((message_id.encode(), timestamp.encode(), body))
    return f"v1,{base64.b64encode(hmac.digest(key, content, hashlib.sha256)).decode()}"
