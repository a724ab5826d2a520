"""A batch is written down: one line for each line of its file, and its audio as files (speech_api §5.3)."""

import base64
import json
import tempfile
import time
from collections.abc import Sequence
from typing import Any, BinaryIO, cast

from speechmill.api.batches.prepare import HOLD_S
from speechmill.api.bulk.expand import item_lines
from speechmill.api.bulk.intake import SPOOL_BYTES
from speechmill.api.bulk.lines import by_the
from speechmill.api.bulk.results import dump_line, failure_of, refused_line, spoken_line, unspoken_line
from speechmill.api.farm import FarmState
from speechmill.api.http.ranges import stored_bytes
from speechmill.api.jobs.find import read_jobs
from speechmill.api.jobs.shown import is_gone, sign
from speechmill.infra import files
from speechmill.infra.encode import EXTENSIONS, AudioFormat
from speechmill.infra.files import FileRecord
from speechmill.infra.groups import GroupRecord, derived_ulid, end_batch, ended_jobs, job_of, tend_group, told
from speechmill.infra.jobs import JobRecord
from speechmill.infra.keys import new_id
from speechmill.infra.listing import fade_jobs
from speechmill.infra.protocol import expire

PURPOSE = "batch_output"
INLINE_BYTES = 1 << 20
INLINE_TOTAL_BYTES = 256 << 20
"""Of one output; the audio of further lines is fetched by its URL, as all of it can be."""
LINGER_S = 3600
"""Of the records of lines, behind the end of their batch."""
_TOGETHER = 100
_MESSAGES = {
    "cancelled": "the batch was cancelled before this line was spoken",
    "expired": "this line was not spoken within the completion window",
}


async def finish(farm: FarmState, batch: GroupRecord) -> None:
    """The batch is over, and its files are there. Safe to do again, also where somebody else is at it."""
    writing = _Writing(farm, batch)
    try:
        if batch.items:
            await writing.write()
        made = await writing.store()
    finally:
        writing.close()
    await farm.client.run(end_batch(batch.id, _last_state(batch), told(made)))
    await farm.client.wait_durable()
    await _let_go(farm, batch)
    if batch.items:
        for key in (batch.items, batch.details["rejects"]):
            await farm.client.run(expire(key, time.time()))


async def _let_go(farm: FarmState, batch: GroupRecord) -> None:
    """Everything that is to be known of the lines' jobs stands in the output, which others may still be writing."""
    place = 0
    while jobs := await ended_jobs(farm.client, batch.id, place):
        await farm.client.run(fade_jobs([job for job, _ in jobs], LINGER_S))
        place = jobs[-1][1]


def _last_state(batch: GroupRecord) -> str:
    if batch.closed == "cancelled":
        return "cancelled"
    return "expired" if batch.counts["expired"] else "completed"


class _Writing:
    """Output and errors, on disk until they are complete."""

    def __init__(self, farm: FarmState, batch: GroupRecord) -> None:
        self._farm, self._batch = farm, batch
        self._expires_at = int(time.time()) + batch.details["output_expires_s"]
        self._inline_left = INLINE_TOTAL_BYTES if batch.metadata.get("audio_delivery") == "inline" else 0
        self._files = {
            name: cast(BinaryIO, tempfile.SpooledTemporaryFile(SPOOL_BYTES))  # noqa: SIM115  see `close`
            for name in ("output", "error")
        }

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    async def write(self) -> None:
        details = self._batch.details
        async for piece in stored_bytes(self._farm, details["rejects"], 0, details["rejects_bytes"]):
            self._files["error"].write(piece)
        line = 0
        async for some in by_the(_TOGETHER, item_lines(self._farm, self._batch)):
            await self._write(line + 1, [json.loads(text)["custom_id"] for text in some])
            line += len(some)
            await self._farm.client.run(tend_group(self._batch.id, HOLD_S))

    async def store(self) -> dict[str, str]:
        """Ids of the files by what they are to the batch; what would be empty is none."""
        made = {}
        for name, content in self._files.items():
            if not content.tell():
                continue
            file = self._file(name, f"{self._batch.id}_{name}.jsonl", content.tell(), "")
            place = f"files/{file.project}/{file.id}/{new_id('write')}"  # another's may be there, with other URLs
            file = self._file(name, file.filename, file.bytes, place)
            await files.register_upload(self._farm.client, file)
            await self._farm.in_store(self._farm.objects.put_once, file.key, content, "application/x-ndjson")
            await files.create(self._farm.client, file)
            made[f"{name}_file_id"] = file.id
        return made

    async def _write(self, first: int, custom_ids: Sequence[str]) -> None:
        """Lines from `first` on."""
        jobs = [job_of(self._batch.id, first + at) for at in range(len(custom_ids))]
        records = {record.job: record for record in await read_jobs(self._farm, jobs)}
        audio = []
        for job, custom_id in zip(jobs, custom_ids, strict=True):
            record = records.get(job)
            if record is not None and record.result is not None and not is_gone(record):
                audio.append(self._audio_file(record))
                self._files["output"].write(dump_line(await self._spoken(record, audio[-1])))
            else:
                self._files["error"].write(dump_line(self._unspoken(job, custom_id, record)))
        if audio:
            await files.create(self._farm.client, *audio)

    async def _spoken(self, record: JobRecord, file: FileRecord) -> dict[str, Any]:
        url = await self._farm.in_store(sign, self._farm, record)
        more: dict[str, Any] = {"file_id": file.id}
        if file.bytes <= min(INLINE_BYTES, self._inline_left):
            self._inline_left -= file.bytes
            audio = await self._farm.in_store(self._farm.objects.read_range, file.key, 0, file.bytes)
            more["audio_data"] = base64.b64encode(audio).decode()
        return spoken_line(record.job.removeprefix("job_"), record, url, **more)

    def _unspoken(self, job: str, custom_id: str, record: JobRecord | None) -> dict[str, Any]:
        number = job.removeprefix("job_")
        if record is not None and record.state == "failed":
            return refused_line(number, custom_id, failure_of(record))
        state = record.state if record is not None else self._batch.closed
        if state not in _MESSAGES:
            return unspoken_line(number, custom_id, "result_expired", "the audio of this line is not kept any more")
        return unspoken_line(number, custom_id, f"batch_{state}", _MESSAGES[state])

    def _audio_file(self, record: JobRecord) -> FileRecord:
        assert record.result is not None
        name = f"{record.job}.{EXTENSIONS[cast(AudioFormat, record.request.response_format)]}"
        return self._file(record.job, name, record.result["bytes"], record.result["key"])

    def _file(self, what: str, filename: str, size_bytes: int, key: str) -> FileRecord:
        file = f"file-{derived_ulid(self._batch.id, what)}"
        return FileRecord(
            file, self._batch.project, filename, PURPOSE, size_bytes, int(time.time()), self._expires_at, key
        )
