"""Utterances of a session that are spoken while their text is still being written."""

import asyncio
from typing import Any

import pytest
import redis
from starlette.requests import HTTPConnection

from speechmill.api.callers import ANYBODY
from speechmill.api.errors import ApiError
from speechmill.api.realtime import session as session_module
from speechmill.api.realtime.routes import ROUTE
from speechmill.api.realtime.session import Session
from speechmill.api.speech import call as call_module
from speechmill.api.speech.call import ClientGone, SpeechCall
from speechmill.api.speech.orders import Asker, make_order, opened
from speechmill.infra.errors import Overloaded
from speechmill.infra.keys import text_log
from speechmill.infra.messages import LogChunk

from .test_farm import Bench
from .test_session import LONG, STREAM, Client, Desk, code_of, kinds, run

INCREMENTAL = {"incremental": True, **STREAM}


class OpenCall:
    """Speaks each piece of its text at once, as a chunk with two bytes for each character."""

    def __init__(self, desk: "OpenDesk", order: Any) -> None:
        assert order.open_text
        self.order = order
        self._desk = desk
        self._chunks: asyncio.Queue[LogChunk | None] = asyncio.Queue()
        self._end = 0
        self.said: list[str] = []
        self.whole = ""
        self.finish_reason = "stop"
        self.closed = False

    async def begin(self, text: str) -> None:
        if self._desk.refusals:
            raise self._desk.refusals.pop()
        self._speak(text)

    async def extend(self, text: str) -> None:
        if "quota" in text:
            raise ApiError(429, "quota_exceeded", "no more")
        self._speak(text)

    def _speak(self, text: str) -> None:
        self.said.append(text)
        start, self._end = self._end, self._end + len(text)
        self._chunks.put_nowait(LogChunk(start, self._end, text.encode("utf-16-le")))

    async def complete(self, text: str) -> None:
        self.whole = text
        self._chunks.put_nowait(LogChunk(self._end, self._end, trailer={}))

    async def next(self) -> LogChunk:
        chunk = await self._chunks.get()
        if chunk is None:
            raise ClientGone
        if b"b\0r\0e\0a\0k" in chunk.payload:
            raise ApiError(500, "generation_failed", "broken")
        return chunk

    first = next

    def leave(self) -> None:
        self._chunks.put_nowait(None)

    async def close(self) -> None:
        self.closed = True

    def observe(self, status: int) -> None:
        self._desk.statuses.append(status)


class OpenDesk(Desk):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[OpenCall] = []
        self.refusals: list[Exception] = []

    def call(self, wanted: Any) -> Any:
        self.open.append(OpenCall(self, wanted))
        return self.open[-1]


def hold(talk: Any, **config: Any) -> None:
    """Hold a session over an open desk."""
    run(talk, desk=OpenDesk(), **{**INCREMENTAL, **config})


def text_of(heard: list[Any]) -> str:
    return b"".join(message for message in heard if isinstance(message, bytes)).decode("utf-16-le")


async def hear_text(client: Client, text: str) -> list[Any]:
    """Everything that is heard until so much has been spoken."""
    heard: list[Any] = []
    while text_of(heard) != text:
        heard.append(await client.hear())
        assert text.startswith(text_of(heard))
    return heard


def test_audio_comes_before_the_text_is_complete() -> None:
    async def talk(client: Client, desk: OpenDesk, _: object) -> None:
        client.say("input.text", text=" Hel")
        start, _audio = await hear_text(client, "Hel")
        assert (start["type"], start["sentence_text"], start["sentence_index"]) == ("audio.start", "Hel", 0)
        client.say("input.text", text="lo ")
        client.say("input.text", text="there ")
        await hear_text(client, "lo there")
        client.say("input.done")
        done, end = await client.hear_until("session.done")
        assert (done["type"], done["total_bytes"], done["error"]) == ("audio.done", 22, False)
        assert (end["total_sentences"], desk.open[0].whole) == (1, "Hello there")

    hold(talk)


def test_a_long_utterance_goes_on_in_the_next_unit() -> None:
    async def talk(client: Client, desk: OpenDesk, _: object) -> None:
        for word in ["This", "one", "is", "long", "enough,", "I", "think.", "And", "another", "one", "follows", "it."]:
            client.say("input.text", text=f"{word} ")
        client.say("input.done")
        heard = await client.hear_until("session.done")
        assert [call.whole for call in desk.open] == [
            "This one is long enough, I think.",
            "And another one follows it.",
        ]
        indices = [m["sentence_index"] for m in heard if isinstance(m, dict) and m["type"] == "audio.start"]
        assert (indices, heard[-1]["total_sentences"]) == ([0, 1], 2)

    hold(talk)


def test_the_next_utterance_collects_its_text_while_one_is_spoken() -> None:
    async def talk(client: Client, desk: OpenDesk, _: object) -> None:
        client.takes.clear()
        for text in ("One", "Two"):
            client.say("input.text", text=text)
            client.say("input.done")
        client.say("input.done")
        client.takes.set()
        heard = [message for _ in range(3) for message in await client.hear_until("session.done")]
        assert [call.whole for call in desk.open] == ["One", "Two"]
        assert [m["total_sentences"] for m in heard if isinstance(m, dict) and m["type"] == "session.done"] == [1, 1, 0]

    hold(talk)


def test_a_cancel_ends_the_utterance_that_is_still_being_written() -> None:
    async def talk(client: Client, desk: OpenDesk, _: object) -> None:
        client.say("input.text", text="Hello")
        await hear_text(client, "Hello")
        client.say("input.cancel")
        cancelled, done, end = await client.hear_until("session.done")
        assert (cancelled["type"], cancelled["sent_ms"], done["error"]) == ("audio.cancelled", 5, False)
        assert (end["cancelled"], end["utterance_index"]) == (True, 0)
        client.say("input.text", text="Next")
        start, _audio = await hear_text(client, "Next")
        assert (start["utterance_index"], desk.open[0].whole) == (1, "")

    hold(talk)


@pytest.mark.parametrize(
    ("text", "code"), [("x" * 101, "input_too_long"), ("a <b> c", "unsupported_parameter"), ("quota", "quota_exceeded")]
)
def test_an_utterance_that_cannot_go_on_is_told_and_ends_when_its_client_says_so(text: str, code: str) -> None:
    async def talk(client: Client, desk: OpenDesk, _: object) -> None:
        client.say("input.text", text="Hello")
        await hear_text(client, "Hello")
        client.say("input.text", text=text)
        error, done = await client.hear_until("audio.done")
        assert (error["type"], error["code"], error["sentence_index"]) == ("error", code, 0)
        assert (error["partial_audio"], done["error"]) == (True, True)
        client.say("input.text", text="more")
        client.say("input.done")
        assert (await client.hear())["total_sentences"] == 1
        client.say("input.text", text="Next")
        await hear_text(client, "Next")

    hold(talk)


def test_a_unit_that_breaks_ends_its_utterance_and_does_not_hurt_the_next() -> None:
    async def talk(client: Client, desk: OpenDesk, _: object) -> None:
        client.say("input.text", text="Things break ")
        assert kinds(await client.hear_until("audio.done")) == ["audio.start", "error", "audio.done"]
        client.say("input.text", text="here, it is said. And then ")
        client.say("input.done")
        assert (await client.hear())["total_sentences"] == 1
        client.say("input.text", text="Next")
        await hear_text(client, "Next")

    hold(talk)


def test_what_is_refused_when_the_text_begins_is_an_error_of_its_unit() -> None:
    async def talk(client: Client, desk: OpenDesk, _: object) -> None:
        desk.refusals = [Overloaded("later")]
        client.say("input.text", text="Hello")
        start, error, done = await client.hear_until("audio.done")
        assert (start["sentence_text"], error["code"], done["error"]) == ("Hello", "queue_full", True)

    hold(talk)


def test_a_client_that_stops_writing_is_idle_although_its_utterance_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    async def talk(client: Client, desk: OpenDesk, running: "asyncio.Task[int]") -> None:
        client.say("input.text", text="Hello")
        heard = await client.hear_until("error")
        assert (text_of(heard), heard[-1]["code"]) == ("Hello", "request_timeout")
        assert await code_of(running) == 1000
        assert desk.open[0].closed

    monkeypatch.setattr(session_module, "IDLE_S", 0.2)
    hold(talk)


@pytest.mark.parametrize(
    "config",
    [{"voice": "patient"}, {"stream_audio": False}, {"split_granularity": "sentence"}, {"incremental": "yes"}],
    ids=str,
)
def test_only_a_model_that_can_speaks_open_texts_and_only_streamed_and_whole(config: dict[str, Any]) -> None:
    async def talk(client: Client, _: Desk, running: "asyncio.Task[int]") -> None:
        error = await client.hear()
        code = "invalid_type" if config.get("incremental") else "unsupported_parameter"
        assert (error["code"], error["param"]) == (code, "incremental")
        assert await code_of(running) == 1008

    hold(talk, **config)


def test_a_session_may_change_between_both_ways() -> None:
    async def main() -> None:
        client, desk = Client(), Desk()
        running = asyncio.create_task(Session(client, desk).run())  # type: ignore[arg-type]
        client.say("session.config", **INCREMENTAL)
        client.say("session.config", **STREAM)
        client.say("input.text", text="Hello. ")
        client.say("input.done")
        assert (await client.hear_until("session.done"))[0]["sentence_text"] == "Hello."
        client.say("session.close")
        assert await asyncio.wait_for(running, LONG) == 1000

    asyncio.run(main())


async def open_call(bench: Bench) -> SpeechCall:
    """Of a text that is still being written."""
    asker = Asker(bench.farm, ANYBODY, HTTPConnection({"type": "http", "path": ROUTE, "headers": []}))
    return SpeechCall(bench.farm, opened(await make_order(asker, {"input": "Hi"}, "ws")), ROUTE, ANYBODY)


def test_a_text_is_kept_for_as_long_as_its_client_is_there(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    async def talk() -> None:
        call = await open_call(bench)
        await call.begin("Hi")
        key, server = bench.client.keys.log(text_log(call.job)), bench.client.server("control")
        server.expire(key, 5)
        await asyncio.sleep(0.2)
        assert server.ttl(key) > 5
        await call.close()
        server.expire(key, 5)
        await asyncio.sleep(0.05)
        assert server.ttl(key) <= 5

    monkeypatch.setattr(call_module, "HOLD_S", 0.01)
    bench.run(talk)


@pytest.mark.parametrize("step", ["append", "submit"])
def test_nothing_is_left_of_a_text_whose_job_never_came_to_be(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    async def away(*_: object) -> None:
        raise redis.ConnectionError("away")

    async def talk() -> None:
        call = await open_call(bench)
        with monkeypatch.context() as broken:
            if step == "append":
                broken.setattr(call, "_write", away)
            else:
                bench.farm.settings.limits.queue_depth = 0
            with pytest.raises((redis.ConnectionError, Overloaded)):
                await call.begin("Hi")
        await call.close()
        left = (bench.client.keys.log(text_log(call.job)), bench.client.keys.log_meta(text_log(call.job)))
        assert bench.client.server("control").exists(*left) == 0

    bench.run(talk)
