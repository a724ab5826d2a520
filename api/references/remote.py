"""Reference clips behind URLs: taken as they were for five minutes, then asked about again (speech_api §1.3)."""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace

from speechmill.api.references.clip import Clip
from speechmill.api.references.decode import decode_clip
from speechmill.api.references.fetch import Validators, fetch
from speechmill.configs.settings import Settings
from speechmill.infra.addresses import AddressPolicy

FRESH_S = 300.0
CACHE_BYTES = 64 << 20
"""Of decoded audio, in each API process."""


@dataclass(frozen=True, slots=True)
class _Known:
    clip: Clip
    validators: Validators
    asked: float
    """When the server last vouched for it, on the cache's clock."""

    @property
    def size_bytes(self) -> int:
        return self.clip.samples.nbytes


class RemoteClips:
    """One cache for each app; projects do not see what others have fetched. Without validators nothing outlives
    `FRESH_S`."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        """Raises ConfigError for bad `fetch.*`."""
        self._policy = AddressPolicy.of(settings.fetch)
        self._settings = settings
        self._clock = clock
        self._known: OrderedDict[tuple[str, str], _Known] = OrderedDict()

    async def get(self, project: str, url: str, param: str) -> Clip:
        """The clip behind a URL. Raises ApiError as `fetch` and `decode_clip` do."""
        place = (project, url)
        known = self._known.get(place)
        if known is not None and self._clock() - known.asked < FRESH_S:
            self._known.move_to_end(place)
            return known.clip
        asked = self._clock()
        self._known.pop(place, None)
        validators = known.validators if known is not None else None
        limit = self._settings.limits.ref_audio_bytes
        fetched = await fetch(url, self._policy, limit, validators, param)
        if fetched is not None:
            clip = await decode_clip(fetched.content, self._settings, param)
            known = _Known(clip, fetched.validators, asked)
        assert known is not None  # nothing else can be the same still
        self._keep(place, replace(known, asked=asked))
        return known.clip

    def _keep(self, place: tuple[str, str], known: _Known) -> None:
        self._known[place] = known
        self._known.move_to_end(place)
        while sum(one.size_bytes for one in self._known.values()) > CACHE_BYTES:
            self._known.popitem(last=False)
