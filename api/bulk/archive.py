"""The audio of a group as one ZIP file, made while it is sent: nothing of it is held (speech_api §5.4.5)."""

import io
import json
import re
import time
import zipfile
from collections.abc import AsyncIterator, Container
from typing import cast

from speechmill.api.bulk.results import ended_records
from speechmill.api.farm import FarmState
from speechmill.api.http.ranges import stored_bytes
from speechmill.api.jobs.shown import is_gone
from speechmill.infra.encode import EXTENSIONS, AudioFormat
from speechmill.infra.groups import GroupRecord
from speechmill.infra.jobs import JobRecord

_NO_PART_OF_A_NAME = re.compile(r"[^\w.-]+")
_NAME_CHARS = 100


class _Pipe(io.RawIOBase):
    """Where the archive is written to, and taken from at once. It cannot be sought in, so sizes follow the bytes."""

    def __init__(self) -> None:
        self._written = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]  # nothing but bytes comes here
        self._written += data
        return len(data)

    def take(self) -> bytes:
        taken = bytes(self._written)
        self._written.clear()
        return taken


async def archive_of(farm: FarmState, group: GroupRecord) -> AsyncIterator[bytes]:
    """Pieces of a ZIP file without compression: a file for each job that has succeeded, then `manifest.json`."""
    pipe = _Pipe()
    files: dict[str, tuple[str, str | None]] = {}
    with zipfile.ZipFile(cast(io.BytesIO, pipe), "w", zipfile.ZIP_STORED) as archive:
        async for record, _ in ended_records(farm, group):
            if record.result is None or is_gone(record):
                continue
            name = _name(record, files)
            files[name] = (record.job, record.custom_id)
            with archive.open(_entry(name), "w", force_zip64=True) as file:
                async for piece in stored_bytes(farm, record.result["key"], 0, record.result["bytes"]):
                    file.write(piece)
                    yield pipe.take()
        archive.writestr(_entry("manifest.json"), _manifest(group, files))
    yield pipe.take()


def _name(record: JobRecord, taken: Container[str]) -> str:
    """By the client's own name, where that can be one of a file and is not another's."""
    extension = EXTENSIONS[cast(AudioFormat, record.request.response_format)]
    name = _NO_PART_OF_A_NAME.sub("_", record.custom_id or record.job).strip(".")[:_NAME_CHARS] or record.job
    return f"{record.job if f'{name}.{extension}' in taken else name}.{extension}"


def _entry(name: str) -> zipfile.ZipInfo:
    return zipfile.ZipInfo(name, time.gmtime()[:6])


def _manifest(group: GroupRecord, files: dict[str, tuple[str, str | None]]) -> str:
    """`files`: job and custom id of each."""
    told = [{"file": name, "job_id": job, "custom_id": custom} for name, (job, custom) in files.items()]
    return json.dumps({"id": group.id, "files": told}, ensure_ascii=False, indent=1)
