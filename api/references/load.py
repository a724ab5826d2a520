"""Reference audio in every form that a request may give it, and its way to the workers (speech_api §1.3, §6.2)."""

import asyncio
import binascii
import os
import re
import stat
import time
from pathlib import Path
from urllib.parse import unquote, urlsplit

from speechmill.api.callers import Caller
from speechmill.api.errors import ApiError
from speechmill.api.farm import FarmState
from speechmill.api.files import find_file, no_file
from speechmill.api.references.clip import Clip
from speechmill.api.references.decode import decode_clip, invalid, too_large
from speechmill.configs.settings import Limits
from speechmill.infra.files import is_file_id
from speechmill.infra.objects import ObjectMissing
from speechmill.infra.protocol import prolong

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_BASE64_MARK = ";base64"
_MOST_DATA_HEAD = 256


async def load_reference(source: str, farm: FarmState, caller: Caller, param: str = "ref_audio") -> Clip:
    """The clip that `source` stands for: an http(s), data or file URL, the id of an uploaded file, or bare base64.

    Raises ApiError 400 `ref_audio_…`, 403 `local_media_forbidden`, 404 `file_not_found`.
    """
    scheme = match[1].lower() if (match := _SCHEME.match(source)) else ""
    if scheme in ("http", "https"):
        return await farm.remote.get(caller.project, source, param)
    limits = farm.settings.limits
    if source.lower().startswith("file://"):
        data = await asyncio.to_thread(_read_local, source, _local_root(farm, caller, param), limits, param)
    elif is_file_id(source):
        data = await _read_uploaded(source, farm, caller, param)
    elif scheme == "data":
        data = await asyncio.to_thread(_from_data_url, source, limits, param)
    elif scheme:
        raise invalid("its scheme is none of http, https, data and file", param)
    else:
        data = await asyncio.to_thread(_from_base64, source, limits, param)
    return await decode_clip(data, farm.settings, param)


async def keep_clip(farm: FarmState, project: str, clip: Clip, keep_s: float) -> str:
    """Store a clip where workers find it, for at least `keep_s` seconds. Answers its key; equal clips share one."""
    key = f"references/{project}/{clip.sha256}.wav"
    await farm.client.run(prolong(key, time.time() + keep_s))
    await farm.in_store(lambda: farm.objects.put_once(key, clip.wav(), "audio/wav"))
    return key


def _from_data_url(source: str, limits: Limits, param: str) -> bytes:
    head, comma, text = source.partition(",")
    if not comma or len(head) > _MOST_DATA_HEAD or not head.lower().endswith(_BASE64_MARK):
        raise invalid("a data URL must be data:[type];base64,…", param)
    return _from_base64(text, limits, param)


def _from_base64(text: str, limits: Limits, param: str) -> bytes:
    if len(text) > 4 * -(-limits.ref_audio_bytes // 3):
        raise too_large(limits, param)
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        raise invalid("it is neither a URL of a known kind nor base64", param) from None


async def _read_uploaded(file_id: str, farm: FarmState, caller: Caller, param: str) -> bytes:
    file = await find_file(farm, caller, file_id, param)
    if file.bytes > farm.settings.limits.ref_audio_bytes:
        raise too_large(farm.settings.limits, param)
    try:
        return await farm.in_store(farm.objects.read_range, file.key, 0, file.bytes)
    except ObjectMissing:
        raise no_file(file_id, param) from None


def _local_root(farm: FarmState, caller: Caller, param: str) -> Path:
    root = farm.settings.media.local_root
    if not root or "local_media" not in caller.scopes:
        raise _forbidden(param)
    return Path(os.path.realpath(root))


def _forbidden(param: str) -> ApiError:
    """The same for every reason: it must not tell which paths there are."""
    told = "this file may not be read; it must lie below media.local_root, and the key have the scope local_media"
    return ApiError(403, "local_media_forbidden", f"{param}: {told}", param)


def _read_local(source: str, root: Path, limits: Limits, param: str) -> bytes:
    try:
        url = urlsplit(source)
        if url.netloc.lower() not in ("", "localhost"):
            raise _forbidden(param)
        inside = Path(os.path.realpath(unquote(url.path, errors="strict"))).relative_to(root)
        with open(_open_below(root, inside), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise _forbidden(param)
            if status.st_size > limits.ref_audio_bytes:
                raise too_large(limits, param)
            return file.read(limits.ref_audio_bytes + 1)
    except (OSError, ValueError):
        raise _forbidden(param) from None


def _open_below(root: Path, inside: Path) -> int:
    """A descriptor of the file. No part of the way may have become a link since it was resolved."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe must not hold us up
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        *above, name = inside.parts
        for part in above:
            below = os.open(part, flags | os.O_DIRECTORY, dir_fd=folder)
            os.close(folder)
            folder = below
        return os.open(name, flags, dir_fd=folder)
    finally:
        os.close(folder)
