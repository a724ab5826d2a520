"""`Idempotency-Key`: a request that is sent again is answered with what it was answered before (speech_api §5.4.8).

The first request with a key is worked on to its end, whether or not its client stays, and its answer is kept. Who asks
again meanwhile is told so, or, where an answer is the audio of one job, attached to that job.
"""

import asyncio
import base64
import contextlib
import hashlib
import json
import logging
import re
import time
from collections.abc import AsyncIterator
from typing import Any

from redis.exceptions import RedisError
from starlette.requests import HTTPConnection, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from speechmill.api.bulk.lines import BODY_BYTES
from speechmill.api.callers import authenticate, require
from speechmill.api.errors import ApiError, StreamBroken, respond, translate
from speechmill.api.farm import FarmState
from speechmill.api.http.digest import body_digest
from speechmill.api.http.profiles import path_profile
from speechmill.api.http.ranges import stored_bytes
from speechmill.api.http.recording import Body, Recorder
from speechmill.api.listen import ended
from speechmill.infra.errors import FarmError
from speechmill.infra.keys import new_id
from speechmill.infra.protocol import expire
from speechmill.infra.replies import begin_reply, drop_reply, hold_reply, put_reply

log = logging.getLogger(__name__)
ONCE = "speechmill.once"
"""Where in a connection's scope stands what names all repetitions of its request, which are one job."""
SPEECH, JOBS, BATCHES, FILES = "/v1/audio/speech", "/v1/audio/jobs", "/v1/batches", "/v1/files"
SCOPES = {
    SPEECH: "speech",
    JOBS: "jobs",
    FILES: "files",
    "/v1/audio/speech/batch": "speech",
    "/v1/audio/voices": "voices:write",
    BATCHES: "batches",
}
"""What a key must hold to create something there."""
KEPT_S = 86_400
LAPSE_S = 30.0
"""After which a request counts as given up, should its process die."""
_KEY = re.compile(r"[!-~]{1,255}")
_FILE_BYTES = 513 << 20
_MOST_REPLY = 64 << 20
"""Longer answers are not kept; a job's audio can be heard again all the same."""
_INLINE_REPLY = 64 << 10
_PASSING = frozenset({401, 403, 408, 409, 429, 499})
"""The same request may be answered otherwise a moment later."""


class Idempotency:
    """Around the routes that create something."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        key = _key_of(scope)
        if key is None:
            await self._app(scope, receive, send)
            return
        body = Body()
        try:
            await self._answer(scope, receive, send, key, body)
        except (ApiError, FarmError, RedisError) as error:
            await respond(translate(error))(scope, receive, send)
        finally:
            body.close()

    async def _answer(self, scope: Scope, receive: Receive, send: Send, key: str, body: Body) -> None:
        if not _KEY.fullmatch(key):
            message = "Idempotency-Key has 1 to 255 visible ASCII characters"
            raise ApiError(400, "invalid_idempotency_key", message, "Idempotency-Key")
        connection = HTTPConnection(scope)
        farm: FarmState = connection.app.state.farm
        caller = await authenticate(connection)
        require(caller, SCOPES[scope["path"]])
        await body.take(receive, _most_bytes(farm, scope["path"]))
        if not body.whole:  # too large for any route, which says so
            await self._app(scope, body.again(receive), send)
            return
        profile = path_profile(connection)
        place = [caller.project, scope["method"], profile.name if profile else "", scope["path"], key]
        slip = _Slip(farm, hashlib.sha256(json.dumps(place).encode()).hexdigest())
        digest = await body_digest(Request(scope, body.again(_silence)), body.file, body.size_bytes)
        begun = await farm.client.run(begin_reply(slip.scope, digest, slip.holder, LAPSE_S))
        if begun.verdict == "reused":
            message = "this Idempotency-Key was sent with another body"
            raise ApiError(422, "idempotency_key_reused", message, "Idempotency-Key")
        if begun.verdict == "done":
            await _replay(farm, json.loads(begun.reply), send)
            return
        inner = {**scope, ONCE: slip.scope} if scope["path"] in (SPEECH, JOBS, BATCHES) else scope
        if begun.verdict == "new":
            async with slip.held():
                await self._record(inner, body, send, slip)
        elif scope["path"] == SPEECH:
            await self._app(inner, body.again(receive), send)
        else:
            raise _in_progress()

    async def _record(self, scope: Scope, body: Body, send: Send, slip: "_Slip") -> None:
        recorder = Recorder(send, _MOST_REPLY)
        try:
            await self._app(scope, body.again(_silence), recorder.send)
            if recorder.ended:
                await slip.fill(recorder)
                await recorder.finish()
        finally:
            recorder.close()


class _Slip:
    """Our claim to a key, and what it stands for in the end."""

    def __init__(self, farm: FarmState, scope: str) -> None:
        self.scope = scope
        self.holder = new_id("req")
        self._farm = farm
        self._filled = False

    @contextlib.asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Ours while the request is worked on; without an answer to keep, anybody's behind it."""
        holding = asyncio.create_task(self._hold())
        try:
            yield
        finally:
            await ended(holding)
            if not self._filled:
                with contextlib.suppress(RedisError):
                    await asyncio.shield(self._farm.client.run(drop_reply(self.scope, self.holder)))

    async def _hold(self) -> None:
        while True:
            await asyncio.sleep(LAPSE_S / 3)
            with contextlib.suppress(RedisError):
                await self._farm.client.run(hold_reply(self.scope, self.holder, LAPSE_S))

    async def fill(self, recorder: Recorder) -> None:
        """Keep the answer, if it is one to keep. A client must not be refused what it has already because we cannot."""
        status = int(recorder.start["status"])
        if not recorder.fits or status >= 500 or status in _PASSING:
            return
        try:
            reply = await self._reply(recorder, status)
            await self._farm.client.run(put_reply(self.scope, self.holder, json.dumps(reply).encode(), KEPT_S))
            self._filled = True
        except (RedisError, FarmError) as error:
            log.warning("answer not kept", extra={"error": type(error).__name__})

    async def _reply(self, recorder: Recorder, status: int) -> dict[str, Any]:
        size = recorder.body.tell()
        recorder.body.seek(0)
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in recorder.start["headers"]]
        reply = {"status": status, "headers": headers, "bytes": size}
        if size <= _INLINE_REPLY:
            return {**reply, "body": base64.b64encode(recorder.body.read()).decode()}
        key = f"replies/{self.scope}/{self.holder}"
        await self._farm.client.run(expire(key, time.time() + KEPT_S + LAPSE_S))
        await self._farm.in_store(self._farm.objects.put_once, key, recorder.body, "application/octet-stream")
        return {**reply, "object": key}


def _most_bytes(farm: FarmState, path: str) -> int:
    """Of a body that is read before the route sees it."""
    return {FILES: _FILE_BYTES, JOBS: BODY_BYTES}.get(path, farm.settings.limits.body_bytes)


def _key_of(scope: Scope) -> str | None:
    """The key of a request that may have one."""
    if scope["type"] != "http" or scope["method"] != "POST" or scope["path"] not in SCOPES:
        return None
    return HTTPConnection(scope).headers.get("idempotency-key")


def _in_progress() -> ApiError:
    error = ApiError(409, "idempotency_key_in_progress", "the first request with this key is being worked on still")
    error.headers = {"Retry-After": "1", "x-should-retry": "true"}
    return error


async def _silence() -> Message:
    """Nobody is there who could leave: what was begun is brought to its end."""
    await asyncio.Event().wait()
    raise AssertionError


async def _replay(farm: FarmState, reply: dict[str, Any], send: Send) -> None:
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in reply["headers"]]
    headers.append((b"idempotent-replayed", b"true"))
    pieces = _kept_body(farm, reply)
    first = await anext(pieces, b"")
    await send({"type": "http.response.start", "status": reply["status"], "headers": headers})
    try:
        await send({"type": "http.response.body", "body": first, "more_body": True})
        async for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
    except FarmError as error:
        raise StreamBroken(error.code) from None
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _kept_body(farm: FarmState, reply: dict[str, Any]) -> AsyncIterator[bytes]:
    if "object" not in reply:
        yield base64.b64decode(reply["body"])
        return
    async for piece in stored_bytes(farm, reply["object"], 0, reply["bytes"]):
        yield piece
