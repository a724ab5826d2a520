"""The whole audio as one complete file, with what can be told only at the end (speech_api §1.4, §1.7)."""

import asyncio
import io
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO, ParamSpec, TypeVar, cast

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from speechmill.api.speech.call import SpeechCall, Timing
from speechmill.api.speech.orders import Order
from speechmill.infra.encode import file_writer
from speechmill.infra.messages import LogChunk, WordMark

MAX_TIMESTAMP_BYTES = 4096
SPOOL_BYTES = 8 << 20
"""Whole files up to this size stay in memory until they are sent."""
READ_BYTES = 256 << 10
P = ParamSpec("P")
T = TypeVar("T")


async def beside(wanted: Order, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Codecs run beside the event loop; WAV and PCM only add a header."""
    if wanted.audio_format in ("pcm", "wav"):
        return work(*args, **kwargs)
    return await asyncio.to_thread(work, *args, **kwargs)


class WholeFile(Response):
    """A complete file, sent no faster than the client takes it."""

    def __init__(self, file: BinaryIO, headers: dict[str, str]) -> None:
        super().__init__(None, 200, {**headers, "Content-Length": str(file.seek(0, io.SEEK_END))})
        self._file = file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._file as file:
            file.seek(0)
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            while data := file.read(READ_BYTES):
                await send({"type": "http.response.body", "body": data, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})


async def whole_file(call: SpeechCall, first: LogChunk) -> Response:
    """Everything, then one complete file; an hour of audio is not kept in memory."""
    file = cast(BinaryIO, tempfile.SpooledTemporaryFile(SPOOL_BYTES))  # noqa: SIM115  closed by the response
    try:
        frames, marks = await write_whole(call, first, file)
        await call.note_queue()
        return WholeFile(file, call.headers() | _facts(call, frames, marks))
    except BaseException:
        file.close()
        raise


async def write_whole(call: SpeechCall, first: LogChunk, file: BinaryIO) -> tuple[int, list[WordMark]]:
    """All of the audio into a file; answers its length in frames and the times of its words."""
    wanted, marks, chunk, frames = call.order, list(first.marks), first, 0
    making = file_writer(wanted.audio_format, wanted.request.sample_rate, wanted.request.channels, file)
    while chunk.trailer is None:
        await beside(wanted, making.write, chunk.payload)
        frames += chunk.end - chunk.start
        chunk = await call.next()
        marks += chunk.marks
    await beside(wanted, making.finish)
    return frames, marks


def _facts(call: SpeechCall, frames: int, marks: Sequence[WordMark]) -> dict[str, str]:
    rate = call.order.request.sample_rate
    usage = call.usage(frames)
    details = usage.pop("input_token_details")
    counts = usage | {f"input_{name}": count for name, count in details.items()}
    facts = {f"x-vllm-omni-{name.replace('_', '-')}": str(count) for name, count in counts.items()}
    facts["X-Audio-Duration-Ms"] = str(round(frames * 1000 / rate))
    facts["X-Finish-Reason"] = call.finish_reason
    facts["Server-Timing"] = _server_timing(call.timing)
    return facts | (_word_timestamps(marks, rate) if call.order.word_timestamps else {})


def _server_timing(timing: Timing) -> str:
    first, total = timing.first - timing.accepted, time.monotonic() - timing.accepted
    parts = {"queue": timing.queued_s or 0.0, "first": first, "total": total}
    return ", ".join(f"{name};dur={seconds * 1000:.1f}" for name, seconds in parts.items())


def word_times(marks: Sequence[WordMark], rate: int) -> list[dict[str, Any]]:
    """Words with their start and end in milliseconds (speech_api §1.7)."""
    return [
        {"word": mark.word, "start_ms": round(mark.start * 1000 / rate), "end_ms": round(mark.end * 1000 / rate)}
        for mark in marks
    ]


def _word_timestamps(marks: Sequence[WordMark], rate: int) -> dict[str, str]:
    text = json.dumps(word_times(marks, rate), separators=(",", ":"))
    if len(text) <= MAX_TIMESTAMP_BYTES:
        return {"X-Word-Timestamps": text}
    return {"X-Word-Timestamps-Omitted": f"oversize; bytes={len(text)}; limit={MAX_TIMESTAMP_BYTES}"}
