"""Profiles settle what a request means where client families disagree about what it leaves out (speech_api §0.5)."""

from dataclasses import dataclass

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from speechmill.configs.settings import ProfileName
from speechmill.infra.encode import AudioFormat

_PREFIX = "/compat/"
_SCOPE_KEY = "speechmill.profile"


@dataclass(frozen=True, slots=True)
class Profile:
    """One column of the table of §0.5."""

    name: ProfileName
    response_format: AudioFormat
    """Where a request names none."""
    pcm_rate: int | None
    """Of pcm and wav where a request names none, in Hz; None for the model's own."""
    streams: bool
    """A request that does not say is answered while the audio is made."""
    lenient: bool
    """What the model cannot honour is ignored and reported instead of refused."""
    voice_objects: bool
    """`voices` of the list are objects instead of names."""
    open_lists: bool
    """Models and voices may be listed without a key, whatever the settings say."""


PROFILES: dict[ProfileName, Profile] = {
    profile.name: profile
    for profile in (
        Profile("native", "wav", None, streams=False, lenient=False, voice_objects=False, open_lists=False),
        Profile("openai", "mp3", 24_000, streams=True, lenient=True, voice_objects=False, open_lists=False),
        Profile("openwebui", "mp3", 24_000, streams=False, lenient=True, voice_objects=True, open_lists=True),
    )
}


class CompatPaths:
    """`/compat/{profile}/v1/…` is `/v1/…` in that profile."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope.get("path", "")
        if path.startswith(_PREFIX):
            name, slash, rest = path[len(_PREFIX) :].partition("/")
            if name in PROFILES and rest.startswith("v1/"):
                raw = scope["raw_path"][len(_PREFIX) + len(name) :]
                scope = {**scope, "path": slash + rest, "raw_path": raw, _SCOPE_KEY: name}
        await self._app(scope, receive, send)


def path_profile(connection: HTTPConnection) -> Profile | None:
    """The one that the path names."""
    name = connection.scope.get(_SCOPE_KEY)
    return PROFILES[name] if name else None
