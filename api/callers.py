"""Who is calling, and what they may do (speech_api §5.6)."""

import hashlib
import hmac
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from ipaddress import ip_address

from starlette.requests import HTTPConnection

from speechmill.api.errors import ApiError
from speechmill.api.farm import FarmState
from speechmill.api.http.profiles import PROFILES, Profile, path_profile
from speechmill.configs.settings import SCOPES, ApiKey, JobClass, KeyLimits, ProfileName, Settings
from speechmill.infra.apikeys import KeyRecord, digest

SUBPROTOCOL_KEY = "openai-insecure-api-key."
"""Browsers can give a WebSocket no headers; OpenAI's clients put the key here."""
_ID_LENGTH = 16


@dataclass(frozen=True, slots=True)
class Caller:
    """One key, or everybody where keys are not asked for."""

    project: str
    key: str
    """Names the key in limits and logs; not the key itself."""
    scopes: frozenset[str]
    models: tuple[str, ...] = ()
    """May use only these; () is all."""
    max_priority: JobClass = "interactive"
    profile: ProfileName | None = None
    limits: KeyLimits = field(default_factory=KeyLimits)


ANYBODY = Caller("default", "open", frozenset(SCOPES) - {"admin"})
"""Where no keys are asked for."""
_VISITOR = Caller("default", "visitor", frozenset())
"""Without a key, where a list may be read without one."""


def auth_enabled(settings: Settings) -> bool:
    """Keys are asked for unless only this machine can reach us, or the settings say otherwise."""
    if settings.auth.enabled != "auto":
        return settings.auth.enabled
    if settings.api.host == "localhost":
        return False
    try:
        return not ip_address(settings.api.host).is_loopback
    except ValueError:
        return True


def given_key(connection: HTTPConnection) -> str:
    """The key that a request carries in any of the ways that clients use; "" for none."""
    headers = connection.headers
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.casefold() == "bearer" and token.strip():
        return token.strip()
    if key := headers.get("x-api-key") or headers.get("xi-api-key"):
        return key
    if connection.scope["type"] != "websocket":
        return ""
    for protocol in connection.scope.get("subprotocols", []):
        if protocol.startswith(SUBPROTOCOL_KEY):
            return str(protocol.removeprefix(SUBPROTOCOL_KEY))
    return connection.query_params.get("api_key", "")


async def authenticate(connection: HTTPConnection) -> Caller:
    """Who calls. Raises ApiError 401 where keys are asked for and this one is missing or unknown."""
    farm: FarmState = connection.app.state.farm
    if not auth_enabled(farm.settings):
        return ANYBODY
    key = given_key(connection)
    if not key:
        raise _unauthenticated("missing_api_key", "this server asks for a key: send 'Authorization: Bearer KEY'")
    known = _configured(key, farm.settings) or await _stored(key, farm)
    if known is None:
        raise _unauthenticated("invalid_api_key", "this key is not known here")
    return Caller(
        project=known.project,
        key=digest(key)[:_ID_LENGTH],
        scopes=frozenset(known.scopes),
        models=known.models,
        max_priority=known.max_priority,
        profile=known.profile,
        limits=known.limits,
    )


def _unauthenticated(code: str, message: str) -> ApiError:
    error = ApiError(401, code, message)
    error.headers = {"WWW-Authenticate": "Bearer"}
    return error


def _configured(key: str, settings: Settings) -> ApiKey | None:
    given = hashlib.sha256(key.encode()).digest()
    found = None
    for known in settings.auth.keys:  # all of them, so that the time taken tells nothing
        if hmac.compare_digest(given, hashlib.sha256(known.key.encode()).digest()):
            found = known
    return found


async def _stored(key: str, farm: FarmState) -> ApiKey | None:
    keys = farm.client.keys.api_keys()
    record = await farm.client.server("control").hget(keys, digest(key))
    return KeyRecord.model_validate_json(record) if record else None


def require(caller: Caller, scope: str) -> None:
    """Raises ApiError 403."""
    if scope not in caller.scopes:
        raise ApiError(403, "permission_denied", f"this key lacks the scope {scope!r}")


def needs(scope: str | None, public_list: bool = False) -> Callable[[HTTPConnection], Awaitable[Caller]]:
    """A dependency that answers the caller. No scope: any key will do.

    `public_list`: readable without a key where lists are public.
    """

    async def caller(connection: HTTPConnection) -> Caller:
        farm: FarmState = connection.app.state.farm
        profile = path_profile(connection)
        is_open = farm.settings.auth.public_lists or (profile is not None and profile.open_lists)
        if public_list and is_open and not given_key(connection):
            return ANYBODY if not auth_enabled(farm.settings) else _VISITOR
        found = await authenticate(connection)
        if scope is not None:
            require(found, scope)
        return found

    return caller


def profile_of(
    connection: HTTPConnection, caller: Caller, default: ProfileName, alias: ProfileName | None = None
) -> Profile:
    """By path, else by key, else by the model's alias, else the farm's own."""
    name = caller.profile or alias or default
    return path_profile(connection) or PROFILES[name]
