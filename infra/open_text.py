"""The log of a text that is still being written, from its writer's side; readers see a log like any other."""

import json
import zlib

from speechmill.infra.keys import LogRef, new_id, text_log
from speechmill.infra.messages import PAYLOAD_VERSION
from speechmill.infra.protocol import Append, Call, Fenced, emit, fence, keep, retire, seal

UNSEALED_S = 60
"""How long a text that is being written stays without a word from its writer. When it goes its job ends."""
HOLD_S = 20.0
"""Between two words of a writer that has nothing to append."""
_HEADER = json.dumps({"unit": "text", "dtype": "utf8", "version": PAYLOAD_VERSION})


class TextWriter:
    """The only one that the log ever has: calls to run in order, `begin` before the job is submitted, and `hold` every
    `HOLD_S` until `seal`.

    `append` and `seal` answer `ok`, or `lost`: the log is not there, or not in full, and nobody can make it again.
    """

    def __init__(self, job: str, ttl_s: int) -> None:
        """`ttl_s`: as long as a task of the job may be claimed; the complete text stays for it."""
        self._log: LogRef = text_log(job)
        self._token = f"1:{new_id('text')}"
        self._ttl_s = ttl_s
        self._end = 0
        self._crc = 0

    def begin(self) -> Call[Fenced]:
        return fence(self._log, self._token, -1, UNSEALED_S, _HEADER)

    def append(self, text: str) -> Call[str]:
        payload = text.encode()
        start, self._end = self._end, self._end + len(payload)
        self._crc = zlib.crc32(payload, self._crc)
        made = Append(start, self._end, self._crc, payload, urgent=True)
        return emit(self._log, self._token, made, UNSEALED_S)

    def hold(self) -> Call[str]:
        """More may follow."""
        return keep(self._log, UNSEALED_S)

    def seal(self) -> Call[str]:
        return seal(self._log, self._token, "{}", self._end, self._ttl_s)

    def discard(self) -> Call[int]:
        """The job was not taken."""
        return retire([self._log], 0, self._log.on)
