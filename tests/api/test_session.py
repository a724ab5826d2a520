"""The protocol of a WebSocket session, with a client and a farm of the test's own."""

import asyncio
import base64
import io
import json
import wave
from collections import deque
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from speechmill.api.errors import ApiError
from speechmill.api.realtime import session as session_module
from speechmill.api.realtime.channel import Disconnected
from speechmill.api.realtime.session import Session
from speechmill.api.speech.call import ClientGone
from speechmill.infra.errors import Overloaded
from speechmill.infra.messages import LogChunk, WordMark

RATE = 1000
HALT = object()
"""In a script of chunks: nothing comes until the call is left."""
LONG = 20.0
Script = list[Any]


class Client:
    """The other end: says what the test wants, hears what the session sends."""

    def __init__(self) -> None:
        self._said: asyncio.Queue[str | bytes | None] = asyncio.Queue()
        self._heard: asyncio.Queue[dict[str, Any] | bytes] = asyncio.Queue()
        self.takes = asyncio.Event()
        self.takes.set()

    async def receive(self) -> str | bytes:
        message = await self._said.get()
        if message is None:
            raise Disconnected
        return message

    async def send(self, message: dict[str, Any] | bytes) -> None:
        await self.takes.wait()
        self._heard.put_nowait(message)

    def say(self, kind: str, **fields: Any) -> None:
        self._said.put_nowait(json.dumps({"type": kind, **fields}))

    def say_raw(self, message: str | bytes | None) -> None:
        self._said.put_nowait(message)

    async def hear(self) -> Any:
        return await asyncio.wait_for(self._heard.get(), LONG)

    async def hear_until(self, kind: str) -> list[Any]:
        heard = [await self.hear()]
        while not (isinstance(heard[-1], dict) and heard[-1]["type"] == kind):
            heard.append(await self.hear())
        return heard

    @property
    def silent(self) -> bool:
        return self._heard.empty()


class Call:
    """A call whose chunks, or failures, stand in a script."""

    def __init__(self, desk: "Desk", order: Any, script: Script) -> None:
        self.order = order
        self._desk = desk
        self._script = deque(script)
        self._gone = asyncio.Event()
        self._at = 0
        self.finish_reason = ""
        self.closed = False

    async def begin(self) -> None:
        self._desk.begun.append(self.order.text)
        if len(self._desk.begun) == 2:
            self._desk.two_begun.set()
        if self._script and isinstance(self._script[0], Overloaded):
            raise self._script.popleft()

    async def next(self) -> LogChunk:
        if self._script and self._script[0] is HALT:
            self._desk.halted.set()
            await self._gone.wait()
        if self._gone.is_set():
            raise ClientGone
        step = self._script.popleft() if self._script else None
        if isinstance(step, Exception):
            raise step
        if step is None:
            self.finish_reason = "stop"
            return LogChunk(self._at, self._at, trailer={})
        start, self._at = self._at, self._at + len(step) // 2
        return LogChunk(start, self._at, step, (WordMark(self.order.text, start, self._at),))

    first = next

    def leave(self) -> None:
        self._gone.set()

    async def close(self) -> None:
        self.closed = True

    def observe(self, status: int) -> None:
        self._desk.statuses.append(status)


class Desk:
    """Speaks every text as its script says, else as one chunk."""

    def __init__(self) -> None:
        self.scripts: dict[str, list[Script]] = {}
        self.begun: list[str] = []
        self.calls: list[Call] = []
        self.statuses: list[int] = []
        self.halted = asyncio.Event()
        self.two_begun = asyncio.Event()

    async def order(self, fields: dict[str, Any], open_text: bool = False) -> Any:
        if fields.get("voice") == "nobody":
            raise ApiError(400, "invalid_voice", "there is no such voice", "voice")
        return SimpleNamespace(
            text=fields["input"],
            card=SimpleNamespace(
                id="toy",
                parameters=SimpleNamespace(incremental=fields.get("voice") != "patient", refused_input="<b>"),
                segments=SimpleNamespace(max_chars=40),
            ),
            terms=SimpleNamespace(max_chars=100),
            open_text=open_text,
            voice=fields.get("voice", "own"),
            audio_format=fields["response_format"],
            request=SimpleNamespace(sample_rate=RATE, channels=1),
            word_timestamps=bool(fields.get("word_timestamps")),
        )

    def call(self, wanted: Any) -> Any:
        scripts = self.scripts.get(wanted.text)
        self.calls.append(Call(self, wanted, scripts.pop(0) if scripts else [b"ab" * 10]))
        return self.calls[-1]


Talk = Callable[[Client, Desk, "asyncio.Task[int]"], Awaitable[None]]


def run(talk: Talk, desk: Desk | None = None, **config: Any) -> None:
    """Hold a session that is configured already, and have the client leave at the end."""

    async def main() -> None:
        client, farm = Client(), desk or Desk()
        running = asyncio.create_task(Session(client, farm).run())  # type: ignore[arg-type]
        if config:
            client.say("session.config", **config)
        await talk(client, farm, running)
        client.say_raw(None)
        await asyncio.wait({running}, timeout=LONG)
        assert running.done()
        assert running.exception() is None or isinstance(running.exception(), Disconnected)
        assert all(call.closed for call in farm.calls)

    asyncio.run(main())


async def code_of(running: "asyncio.Task[int]") -> int:
    return await asyncio.wait_for(running, LONG)


def kinds(heard: list[Any]) -> list[str]:
    return ["binary" if isinstance(message, bytes) else message["type"] for message in heard]


STREAM = {"stream_audio": True, "response_format": "pcm"}


def test_a_unit_is_one_complete_file_unless_audio_is_streamed() -> None:
    async def talk(client: Client, desk: Desk, _: object) -> None:
        desk.scripts["Hello. World."] = [[b"ab" * 10, b"cd" * 20]]
        client.say("input.text", text="Hello. ")
        client.say("input.text", text="World. ")
        client.say("input.done")
        start, file, done, end = await client.hear_until("session.done")
        assert start == {
            "type": "audio.start",
            "utterance_index": 0,
            "sentence_index": 0,
            "sentence_text": "Hello. World.",
            "format": "wav",
            "sample_rate": RATE,
            "channels": 1,
        }
        with wave.open(io.BytesIO(file)) as sound:
            assert sound.readframes(99) == b"ab" * 10 + b"cd" * 20
        assert (done["total_bytes"], done["error"], done["duration_ms"]) == (len(file), False, 30)
        assert end == {"type": "session.done", "utterance_index": 0, "total_sentences": 1}

    run(talk, ack=False)


def test_streamed_audio_comes_chunk_by_chunk_and_a_wav_header_in_front_of_the_first() -> None:
    async def talk(client: Client, desk: Desk, _: object) -> None:
        desk.scripts["Hello."] = [[b"ab" * 10, b"cd" * 20]]
        client.say("input.text", text="Hello.")
        client.say("input.done")
        start, first, second, done, _end = await client.hear_until("session.done")
        assert start["type"] == "audio.start"
        assert (first[:4], first[44:], second) == (b"RIFF", b"ab" * 10, b"cd" * 20)
        assert done["total_bytes"] == 44 + 60

    run(talk, stream_audio=True)


def test_units_and_utterances_are_counted_and_come_in_order() -> None:
    async def talk(client: Client, _: Desk, running: object) -> None:
        client.say("input.text", text="One. Two. Thr")
        assert (await client.hear_until("audio.done"))[0]["sentence_text"] == "One."
        assert (await client.hear_until("audio.done"))[0]["sentence_index"] == 1
        client.say("input.text", text="ee.")
        client.say("input.done")
        client.say("input.done")
        client.say("input.text", text="Four.")
        client.say("input.done")
        heard = [message for _ in range(3) for message in await client.hear_until("session.done")]
        told = [(m["type"], m["utterance_index"]) for m in heard if isinstance(m, dict)]
        unit = ["audio.start", "audio.done"]
        assert told == [(kind, 0) for kind in [*unit, "session.done"]] + [("session.done", 1)] + [
            (kind, 2) for kind in [*unit, "session.done"]
        ]
        assert [m["total_sentences"] for m in heard if isinstance(m, dict) and m["type"] == "session.done"] == [3, 0, 1]

    run(talk, split_granularity="sentence", **STREAM)


def test_the_next_unit_is_begun_while_one_is_sent_and_not_the_one_after_it() -> None:
    async def talk(client: Client, desk: Desk, _: object) -> None:
        client.takes.clear()
        client.say("input.text", text="One. Two. Three. Four. ")
        await asyncio.wait_for(desk.two_begun.wait(), LONG)
        for _ in range(50):  # every chance to go too far
            await asyncio.sleep(0)
        assert desk.begun == ["One.", "Two."]
        client.takes.set()
        await client.hear_until("audio.done")
        await client.hear_until("audio.done")
        assert desk.begun[:3] == ["One.", "Two.", "Three."]

    run(talk, split_granularity="sentence", **STREAM)


def test_what_is_refused_ahead_of_its_turn_is_asked_for_again() -> None:
    async def talk(client: Client, desk: Desk, _: object) -> None:
        desk.scripts["Two."] = [[Overloaded("later")], [b"xy" * 5]]
        client.say("input.text", text="One. Two. ")
        await client.hear_until("audio.done")
        assert (await client.hear_until("audio.done"))[1] == b"xy" * 5
        assert desk.begun == ["One.", "Two.", "Two."]

    run(talk, split_granularity="sentence", **STREAM)


@pytest.mark.parametrize(
    ("script", "code", "between"),
    [
        ([Overloaded("later")], "queue_full", []),
        ([ApiError(500, "generation_failed", "broken")], "generation_failed", []),
        ([b"ab" * 10, ApiError(500, "generation_failed", "broken")], "generation_failed", ["binary"]),
    ],
)
def test_a_unit_that_fails_is_still_a_pair_and_the_next_one_is_spoken(
    script: Script, code: str, between: list[str]
) -> None:
    async def talk(client: Client, desk: Desk, _: object) -> None:
        desk.scripts["One."] = [script]
        client.say("input.text", text="One. Two. ")
        heard = await client.hear_until("audio.done")
        assert kinds(heard) == ["audio.start", *between, "error", "audio.done"]
        error, done = heard[-2:]
        assert (error["code"], error["utterance_index"], error["sentence_index"]) == (code, 0, 0)
        assert (error.get("partial_audio"), error.get("action")) == ((True, "discard") if between else (None, None))
        assert (done["error"], "finish_reason" in done) == (True, False)
        assert kinds(await client.hear_until("audio.done")) == ["audio.start", "binary", "audio.done"]

    run(talk, split_granularity="sentence", **STREAM)


def test_word_times_come_in_chunks_and_the_last_one_lists_the_words() -> None:
    async def talk(client: Client, desk: Desk, _: object) -> None:
        desk.scripts["Hello"] = [[b"ab" * 10, b"cd" * 20]]
        client.say("input.text", text="Hello")
        client.say("input.done")
        start, *chunks, done = await client.hear_until("audio.done")
        assert start["word_timestamps"] is True
        places = [(c["chunk_id"], c["chunk_start_ms"], c["chunk_end_ms"]) for c in chunks]
        assert places == [(0, 0, 10), (1, 10, 30), (2, 30, 30)]
        assert [base64.b64decode(c["audio_b64"]) for c in chunks] == [b"ab" * 10, b"cd" * 20, b""]
        assert [c["timestamps"] for c in chunks[:2]] == [None, None]
        assert chunks[2]["timestamps"][1] == {"word": "Hello", "start_ms": 10, "end_ms": 30}
        assert done["total_bytes"] == 60

    run(talk, word_timestamps=True, **STREAM)


def test_word_times_need_streamed_pcm() -> None:
    async def talk(client: Client, _: Desk, running: "asyncio.Task[int]") -> None:
        assert (await client.hear())["param"] == "word_timestamps"
        assert await code_of(running) == 1008

    run(talk, word_timestamps=True)


def test_a_config_is_acknowledged_when_it_asks_for_it() -> None:
    async def talk(client: Client, _: Desk, running: object) -> None:
        told = await client.hear()
        assert told.pop("session_id").startswith("sess_")
        assert told == {
            "type": "session.configured",
            "model": "toy",
            "voice": "alice",
            "format": "mp3",
            "sample_rate": RATE,
            "channels": 1,
        }

    run(talk, ack=True, voice="alice", response_format="mp3")


# -- cancelling ---------------------------------------------------------------------------------------------------


def test_a_cancel_ends_the_running_unit_and_every_utterance_that_is_not_finished() -> None:
    async def talk(client: Client, desk: Desk, _: object) -> None:
        desk.scripts["One."] = [[b"ab" * 10, HALT]]
        client.say("input.text", text="One. Two. Three")
        client.say("input.done")
        client.say("input.text", text="Four. ")
        client.say("input.done")
        client.say("input.text", text="Fi")
        assert kinds([await client.hear(), await client.hear()]) == ["audio.start", "binary"]
        await desk.halted.wait()
        client.say("input.cancel")
        cancelled, done, *ends = [await client.hear() for _ in range(5)]
        assert cancelled == {
            "type": "audio.cancelled",
            "utterance_index": 0,
            "sentence_index": 0,
            "sent_ms": 10,
            "reason": "client_cancel",
        }
        assert (done["type"], done["error"], done["total_bytes"]) == ("audio.done", False, 20)
        assert [(e["type"], e["utterance_index"], e["total_sentences"], e["cancelled"]) for e in ends] == [
            ("session.done", 0, 1, True),
            ("session.done", 1, 0, True),
            ("session.done", 2, 0, True),
        ]
        client.say("input.text", text="Next.")
        client.say("input.done")
        start, _, _, end = await client.hear_until("session.done")
        assert (start["utterance_index"], start["sentence_text"], "cancelled" in end) == (3, "Next.", False)
        assert "Three" not in desk.begun
        assert 499 in desk.statuses

    run(talk, split_granularity="sentence", **STREAM)


def test_a_unit_without_audio_yet_is_cancelled_as_a_pair() -> None:
    async def talk(client: Client, desk: Desk, _: object) -> None:
        desk.scripts["One."] = [[HALT]]
        client.say("input.text", text="One.")
        client.say("input.done")
        await desk.halted.wait()
        client.say("input.cancel")
        heard = await client.hear_until("session.done")
        assert kinds(heard) == ["audio.start", "audio.cancelled", "audio.done", "session.done"]
        assert heard[1]["sent_ms"] == 0

    run(talk, **STREAM)


def test_a_cancel_of_nothing_says_nothing() -> None:
    async def talk(client: Client, _: Desk, running: object) -> None:
        client.say("input.cancel")
        client.say("input.text", text="  ")
        client.say("input.cancel")
        client.say("input.text", text="Hello.")
        client.say("input.done")
        assert (await client.hear_until("session.done"))[0]["utterance_index"] == 0
        client.say("input.cancel")
        client.say("nonsense")
        assert (await client.hear())["type"] == "error"

    run(talk, **STREAM)


def test_the_client_is_listened_to_while_audio_is_made() -> None:
    async def talk(client: Client, desk: Desk, _: object) -> None:
        desk.scripts["One."] = [[b"ab", HALT]]
        client.say("input.text", text="One.")
        client.say("input.done")
        await desk.halted.wait()
        client.say("nonsense")
        heard = await client.hear_until("error")
        assert kinds(heard) == ["audio.start", "binary", "error"]

    run(talk, **STREAM)


@pytest.mark.parametrize("leaving", [None, '{"type": "session.close"}'])
def test_who_leaves_gives_up_the_running_unit_and_the_next_one(leaving: str | None) -> None:
    async def talk(client: Client, desk: Desk, running: "asyncio.Task[int]") -> None:
        desk.scripts["One."] = [[b"ab", HALT]]
        client.say("input.text", text="One. Two. Three. ")
        await desk.halted.wait()
        client.say_raw(leaving)
        await asyncio.wait({running}, timeout=LONG)
        assert desk.begun == ["One.", "Two."]
        if leaving:
            assert running.result() == 1000

    run(talk, split_granularity="sentence", **STREAM)


# -- what is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ('{"type": "input.text", "text": "Hi"}', "Expected session.config, got: input.text"),
        ("{}", "Expected session.config, got: None"),
        ("{broken", "the body is not valid JSON"),
        ("[1]", "the body must be a JSON object"),
        ('{"type": "session.config", "voice": "nobody"}', "there is no such voice"),
        ('{"type": "session.config", "stream_audio": 1}', "stream_audio: Input should be a valid boolean"),
        ('{"type": "session.config", "split_granularity": "word"}', None),
        ('{"type": "session.config", "ref_audio": "%s"}' % ("A" * (4 << 20)), None),
    ],
)
def test_the_first_message_is_a_good_config_or_the_last(raw: str, message: str | None) -> None:
    async def talk(client: Client, _: Desk, running: "asyncio.Task[int]") -> None:
        client.say_raw(raw)
        error = await client.hear()
        assert error["type"] == "error"
        assert message in (None, error["message"])
        assert await code_of(running) == 1008

    run(talk)


def test_later_mistakes_are_told_and_change_nothing() -> None:
    async def talk(client: Client, _: Desk, running: object) -> None:
        wrong = [
            ('{"type": "nonsense"}', "Unknown message type: nonsense", "invalid_value"),
            ('{"type": "input.text", "text": 123}', "text must be a string", "invalid_type"),
            ('{"type": "\\ud800%s"}' % ("x" * 999), "Unknown message type: " + "x" * 64, "invalid_value"),
            ("{broken", "the body is not valid JSON", "invalid_json"),
            ("[1]", "the body must be a JSON object", "invalid_json"),
            (bytes(10), "messages are text frames with a JSON object", "invalid_message"),
            ('{"type": "session.config", "voice": "nobody"}', "there is no such voice", "invalid_voice"),
            ('{"type": "input.text", "text": "%s"}' % ("a" * (128 << 10)), None, "request_too_large"),
        ]
        for raw, message, code in wrong:
            client.say_raw(raw)
            error = await client.hear()
            assert (error["type"], error["code"]) == ("error", code)
            assert message in (None, error["message"])
        client.say("input.text", text="Still here.")
        client.say("input.done")
        start = await client.hear()
        assert (start["sentence_text"], start["format"]) == ("Still here.", "mp3")

    run(talk, response_format="mp3", stream_audio=True)


def test_a_config_waits_for_the_end_of_the_text_that_is_pending() -> None:
    async def talk(client: Client, _: Desk, running: object) -> None:
        client.say("input.text", text="One. ")
        await client.hear_until("audio.done")
        client.say("session.config", **STREAM)
        error = await client.hear()
        assert error["code"] == "session_busy"
        assert "input.done" in error["message"]
        client.say("input.done")
        client.say("session.config", stream_audio=True, response_format="wav")
        client.say("input.text", text="Two. Three.")
        client.say("input.done")
        await client.hear_until("session.done")
        start = await client.hear()
        assert (start["format"], start["sentence_text"]) == ("wav", "Two. Three.")

    run(talk, split_granularity="sentence", **STREAM)


def test_text_beyond_what_may_wait_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def talk(client: Client, desk: Desk, _: object) -> None:
        client.say("input.text", text="x" * 600)
        client.say("input.text", text="y" * 600)
        error = await client.hear()
        assert (error["code"], "y" in error["message"].split()) == ("input_too_long", False)
        client.say("input.cancel")
        await client.hear_until("session.done")
        client.say("input.text", text="y" * 600)
        client.say("input.done")
        assert (await client.hear())["sentence_text"] == "y" * 600

    monkeypatch.setattr(session_module, "BACKLOG_CHARS", 1000)
    run(talk, **STREAM)


def test_a_first_config_that_does_not_come_ends_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    async def talk(client: Client, _: Desk, running: "asyncio.Task[int]") -> None:
        client.say_raw(b"binary")
        assert (await client.hear())["code"] == "invalid_message"
        assert (await client.hear())["message"] == "Timeout waiting for session.config"
        assert await code_of(running) == 1008

    monkeypatch.setattr(session_module, "CONFIG_S", 0.05)
    run(talk)


def test_a_client_that_says_nothing_is_idle_only_while_nothing_is_spoken(monkeypatch: pytest.MonkeyPatch) -> None:
    async def talk(client: Client, desk: Desk, running: "asyncio.Task[int]") -> None:
        desk.scripts["One."] = [[b"ab", HALT]]
        client.say("input.text", text="One.")
        client.say("input.done")
        await desk.halted.wait()
        await asyncio.wait({running}, timeout=0.2)
        assert not running.done()
        desk.calls[0].leave()
        heard = await client.hear_until("error")
        assert kinds(heard)[-2:] == ["session.done", "error"]
        assert heard[-1]["message"] == "Idle timeout: no message received"
        assert await code_of(running) == 1000

    monkeypatch.setattr(session_module, "IDLE_S", 0.05)
    run(talk, **STREAM)
