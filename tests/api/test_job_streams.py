"""Listening to jobs over the API in this process: any frame, any number of readers, live, spilled and stored."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from speechmill.infra.encode import encoder
from speechmill.infra.keys import out_log
from speechmill.infra.protocol import (
    end_job,
    seal,
    trim,
)

from .jobs import FRAMES, JOBS, PCM, TOKEN, ask, create, error_of, open_log, start, succeed, write
from .test_farm import Bench


@asynccontextmanager
async def hearing(bench: Bench, path: str, **headers: str) -> AsyncIterator[asyncio.Task[httpx.Response]]:
    task = asyncio.create_task(ask(bench, "GET", path, **headers))
    yield task
    await asyncio.wait({task}, timeout=30)
    assert task.done()


def test_a_stream_waits_for_its_first_byte_and_begins_anywhere(bench: Bench) -> None:
    async def talk() -> None:
        job = await create(bench)
        stream = f"{JOBS}/{job}/stream"
        async with (
            hearing(bench, stream) as whole,
            hearing(bench, f"{stream}?from_frame=5000&format=wav") as later,
            hearing(bench, stream, **{"Last-Event-ID": "7"}) as resumed,
            hearing(bench, f"{stream}?from_frame={FRAMES}") as at_end,
            hearing(bench, f"{stream}?from_frame={FRAMES + 1}") as beyond,
        ):
            done, _ = await asyncio.wait({whole, later, resumed}, timeout=0.3)
            assert not done
            out = open_log(bench, job)
            at = 0
            for first in range(0, len(PCM), 5000):
                at = write(bench, out, at, PCM[first : first + 5000])
            bench.client.run(seal(out, TOKEN, json.dumps({"frames": FRAMES}), FRAMES))
        assert whole.result().content == PCM
        told = whole.result().headers
        assert (told["x-start-frame"], told["content-type"], told["x-sample-rate"]) == ("0", "audio/pcm", "24000")
        assert later.result().content[:4] == b"RIFF"
        assert later.result().content[44:] == PCM[10_000:]
        told = later.result().headers
        assert (told["x-start-frame"], told["content-type"]) == ("5000", "audio/wav")
        assert resumed.result().content == PCM[14:]
        assert (at_end.result().status_code, at_end.result().content) == (200, b"")
        assert error_of(beyond.result()) == (416, "range_not_satisfiable", "from_frame")

    bench.run(talk)


@pytest.mark.parametrize("audio_format", ["pcm", "wav", "flac"])
def test_what_has_left_the_log_comes_from_the_stored_result(bench: Bench, audio_format: str) -> None:
    async def talk() -> None:
        job = await create(bench, request={"response_format": audio_format})
        making = encoder(audio_format, 24_000, 1, streaming=False, total_frames=FRAMES)  # type: ignore[arg-type]
        body = making.feed(PCM) + making.finish()
        succeed(bench, job, audio_format, body)
        for frame in (0, 1, 4321, FRAMES - 1, FRAMES):
            heard = await ask(bench, "GET", f"{JOBS}/{job}/stream?from_frame={frame}")
            assert heard.content == PCM[2 * frame :]
        path = f"{JOBS}/{job}/stream"
        beyond = await ask(bench, "GET", f"{path}?from_frame={FRAMES + 1}")
        assert error_of(beyond) == (416, "range_not_satisfiable", "from_frame")
        beyond = await ask(bench, "GET", path, **{"Last-Event-ID": str(FRAMES + 1)})
        assert error_of(beyond) == (416, "range_not_satisfiable", "Last-Event-ID")
        refused = await ask(bench, "GET", path, Accept="text/event-stream;q=0, audio/*")
        assert refused.headers["content-type"] == "audio/pcm"

    bench.run(talk)


def test_what_only_a_lossy_result_holds_is_gone_unless_it_was_spilled(bench: Bench) -> None:
    async def talk() -> None:
        job = await create(bench, request={"response_format": "mp3"})
        succeed(bench, job, "mp3", b"no samples")
        assert error_of(await ask(bench, "GET", f"{JOBS}/{job}/stream")) == (410, "stream_expired", None)
        bench.farm.listening.spill.write(out_log(job, 1), 0, FRAMES, PCM)
        heard = await ask(bench, "GET", f"{JOBS}/{job}/stream?from_frame=100")
        assert heard.content == PCM[200:]

    bench.run(talk)


def test_what_was_spilled_and_what_is_in_the_log_join_without_a_seam(bench: Bench) -> None:
    async def talk() -> None:
        job = await create(bench)
        out = open_log(bench, job)
        at = write(bench, out, 0, PCM[:10_000])
        at = write(bench, out, at, PCM[10_000:20_000])
        write(bench, out, at, PCM[20_000:])
        bench.farm.listening.spill.write(out, 0, 10_000, PCM[:20_000])
        bench.client.run(trim(out, 10_000))
        bench.client.run(seal(out, TOKEN, json.dumps({"frames": FRAMES}), FRAMES))
        for frame in (0, 4999, 9999, 10_000, 10_001):
            assert (await ask(bench, "GET", f"{JOBS}/{job}/stream?from_frame={frame}")).content == PCM[2 * frame :]

    bench.run(talk)


def events_of(text: str) -> list[tuple[str | None, dict[str, Any]]]:
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if line and not line.startswith(":"))
        if fields:
            data = json.loads(fields["data"])
            assert data["type"] == fields["event"]
            found.append((fields.get("id"), data))
    return found


def test_events_tell_the_job_s_way_and_audio_with_ids_to_go_on_from(bench: Bench) -> None:
    async def talk() -> None:
        job = await create(bench)
        accept = {"Accept": "text/event-stream"}
        async with (
            hearing(bench, f"{JOBS}/{job}/stream", **accept) as stream,
            hearing(bench, f"{JOBS}/{job}/events") as events,
        ):
            await asyncio.wait({stream, events}, timeout=0.5)
            start(bench, job)
            out = open_log(bench, job)
            write(bench, out, 0, PCM)
            await asyncio.wait({stream}, timeout=0.5)
            bench.client.run(seal(out, TOKEN, json.dumps({"frames": FRAMES}), FRAMES))
            await asyncio.wait({stream}, timeout=30)
            bench.client.run(end_job(job, "expired", '{"code": "deadline_exceeded", "message": "late"}'))
        came = events_of(stream.result().text)
        assert [data["status"] for _, data in came if data["type"] == "job.status"] == ["queued", "running"]
        assert came[0][0] is None
        deltas = [(where, data) for where, data in came if data["type"] == "speech.audio.delta"]
        assert deltas[-1][0] == str(FRAMES)
        assert came[-1][1]["type"] == "speech.audio.done"
        assert came[-1][1]["job_id"] == job
        told = events_of(events.result().text)
        assert (told[0][1]["status"], told[-1][1]["status"]) == ("queued", "expired")
        assert told[-1][1]["error"]["code"] == "deadline_exceeded"

    bench.run(talk)


def test_a_stream_of_a_cancelled_job_ends_with_an_error(bench: Bench) -> None:
    async def talk() -> None:
        job = await create(bench)
        async with (
            hearing(bench, f"{JOBS}/{job}/stream") as raw,
            hearing(bench, f"{JOBS}/{job}/stream", Accept="text/event-stream") as sse,
        ):
            await asyncio.wait({raw}, timeout=0.2)
            await ask(bench, "POST", f"{JOBS}/{job}/cancel")
        assert error_of(raw.result()) == (409, "result_not_ready", None)
        assert events_of(sse.result().text)[-1][1]["error"]["code"] == "result_not_ready"
        assert error_of(await ask(bench, "GET", f"{JOBS}/{job}/stream")) == (409, "result_not_ready", None)
        bad = await ask(bench, "GET", f"{JOBS}/{job}/stream", **{"Last-Event-ID": "x"})
        assert error_of(bad) == (400, "invalid_value", "Last-Event-ID")

    bench.run(talk)
