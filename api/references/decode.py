"""Decoding reference clips: sniffed here, decoded in a limited process of their own (speech_api §1.3, §6.3)."""

import asyncio
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from speechmill.api.errors import ApiError
from speechmill.api.references.clip import Clip
from speechmill.configs.settings import Limits, Settings

CPU_S = 5
WALL_S = 10.0
"""More than the CPU time, for a machine with much to do."""
MEMORY_BYTES = 512 << 20
AT_ONCE = 4
LOUDEST = 1000.0
"""Of full scale. Float samples somewhat above it are common; numbers like this are no sound."""
_CHILD = Path(__file__).with_name("decode_child.py")
_MAGICS = {b"fLaC": "flac", b"OggS": "ogg", b"\x1aE\xdf\xa3": "matroska"}
_LONGEST_MAGIC = 12
_ID3_HEAD = 10
_CHILDREN = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="decode")


async def decode_clip(data: bytes, settings: Settings, param: str = "ref_audio") -> Clip:
    """A clip of any accepted container, mixed to mono, at its own rate.

    Raises ApiError 400 `ref_audio_too_large`, `ref_audio_invalid`, `ref_audio_too_short` or `ref_audio_too_long`.
    """
    limits = settings.limits
    if len(data) > limits.ref_audio_bytes:
        raise too_large(limits, param)
    container = sniff(data)
    if container is None:
        raise invalid("it is no wav, mp3, flac, ogg, aac, m4a, mp4 or webm", param)
    shortest, longest = limits.ref_audio_seconds
    loop = asyncio.get_running_loop()
    sound = data if container == "mp3" else data[_id3_end(data) :]  # other demuxers do not look for a tag
    clip = await loop.run_in_executor(_CHILDREN, _decode, sound, container, longest)
    if isinstance(clip, str):
        raise invalid(clip, param)
    if np.abs(clip.samples).max(initial=0) > LOUDEST:
        raise invalid("its samples are far beyond full scale", param)
    if clip.seconds < shortest:
        raise ApiError(400, "ref_audio_too_short", f"{param} lasts less than {shortest:g} s", param)
    if clip.seconds > longest:
        raise ApiError(400, "ref_audio_too_long", f"{param} lasts more than {longest:g} s", param)
    return clip


def invalid(why: str, param: str) -> ApiError:
    return ApiError(400, "ref_audio_invalid", f"{param} cannot be used: {why}", param)


def too_large(limits: Limits, param: str) -> ApiError:
    return ApiError(400, "ref_audio_too_large", f"{param} is larger than {limits.ref_audio_bytes} bytes", param)


def sniff(data: bytes) -> str | None:
    """The demuxer for what these bytes begin with, or None. What a client says of its type is not asked."""
    start = _id3_end(data)
    head = data[start : start + _LONGEST_MAGIC]
    if head[:4] in (b"RIFF", b"RF64") and head[8:] == b"WAVE":
        return "wav"
    if head[4:8] == b"ftyp":
        return "mp4"
    for magic, container in _MAGICS.items():
        if head.startswith(magic):
            return container
    if len(head) > 2 and head[0] == 0xFF and head[1] & 0xE0 == 0xE0:
        return _mpeg(head[1], head[2])
    return "mp3" if start else None


def _id3_end(data: bytes) -> int:
    """Where an ID3 tag at the beginning ends; 0 without one. Its size stands in four times seven bits."""
    if not data.startswith(b"ID3"):
        return 0
    size = 0
    for byte in data[6:_ID3_HEAD]:
        size = size << 7 | byte & 0x7F
    return _ID3_HEAD + size


def _mpeg(second: int, third: int) -> str | None:
    """After a sync word: ADTS has layer 0, which MPEG audio does not know."""
    if second & 0xF6 == 0xF0:
        return "aac"
    version, layer = second >> 3 & 3, second >> 1 & 3
    bitrate, rate = third >> 4, third >> 2 & 3
    return "mp3" if version != 1 and layer and bitrate != 15 and rate != 3 else None


def _decode(data: bytes, container: str, max_seconds: float) -> Clip | str:
    """The clip, or why there is none."""
    head, _, payload = _run_child(data, container, max_seconds).partition(b"\n")
    if not head:
        return "it takes too much time or memory to decode"
    told = json.loads(head)
    if "fault" in told:
        return str(told["fault"])
    return Clip(np.frombuffer(payload, "<f4").astype(np.float32, copy=False), int(told["rate"]))


def _run_child(data: bytes, container: str, max_seconds: float) -> bytes:
    """What the child wrote; nothing if it was killed."""
    command = [sys.executable, "-I", str(_CHILD), container, str(max_seconds), str(CPU_S), str(MEMORY_BYTES)]
    try:
        child = subprocess.run(
            command,
            input=data,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"OPENBLAS_NUM_THREADS": "1"},  # each of its threads would reserve memory; and no secrets
            timeout=WALL_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return b""
    return child.stdout if child.returncode == 0 else b""
