"""What the tests say on a CPU, on a GPU: `checks.py FAMILY SIZE [DEVICE]`, with random weights."""

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module

import numpy as np
import torch
from torch import Tensor

from speechmill.models.common.codec.decoder import Decoder
from speechmill.models.common.decode_attention import SWITCH, decode, is_available, load_error
from speechmill.models.common.device import talker_dtype
from speechmill.models.common.engine.engine import Engine, EngineOptions
from speechmill.models.common.engine.model import FrameModel, Request
from speechmill.models.common.pcm import to_s16
from speechmill.models.common.speed import PROMPT, Subject

FAMILY, SIZE, DEVICE = sys.argv[1], sys.argv[2], torch.device((sys.argv[3:] or ["cuda"])[0])
FRAMES = 40
SLOTS = 8
Spoken = dict[int, list[tuple[int, ...]]]


def softmax_attention(query: Tensor, keys: Tensor, values: Tensor, tables: Tensor, lengths: Tensor) -> Tensor:
    out = torch.zeros_like(query, dtype=torch.float64)
    group = query.shape[1] // keys.shape[2]
    for row, length in enumerate(lengths.tolist()):
        if length:
            seen = (part[tables[row].long()].flatten(0, 1)[:length].double() for part in (keys, values))
            key, value = (part.repeat_interleave(group, 1) for part in seen)
            scores = torch.einsum("hd,lhd->hl", query[row].double(), key) / query.shape[-1] ** 0.5
            out[row] = torch.einsum("hl,lhd->hd", scores.softmax(-1), value)
    return out.to(query.dtype)


def kernel_is_softmax_attention(subject: Subject) -> None:
    """With the family's heads, over lengths on and beside the borders of pages and splits."""
    torch.manual_seed(0)
    kv, lengths = subject.talker.kv, [0, 1, 63, 64, 65, 500, 2048, 5000]
    each = -(-max(lengths) // 64)
    tables = torch.randperm(each * len(lengths), device=DEVICE).view(len(lengths), each).int()
    for dtype, close in ((torch.float16, 2e-3), (torch.bfloat16, 2e-2)):
        query = torch.randn(len(lengths), 2 * kv.kv_heads, kv.size, device=DEVICE).to(dtype)
        keys, values = (
            torch.randn(each * len(lengths), 64, kv.kv_heads, kv.size, device=DEVICE).to(dtype) for _ in range(2)
        )
        given = (query, keys, values, tables, torch.tensor(lengths, device=DEVICE).int())
        torch.testing.assert_close(decode(*given), softmax_attention(*given), rtol=0, atol=close)


def engine_of(talker: FrameModel, pages: int = 0) -> Engine:
    engine = Engine(talker, EngineOptions(SLOTS, pages=pages))
    engine.capture()
    return engine


def requests(subject: Subject) -> dict[int, Request]:
    """Of several lengths, some with a common beginning."""
    whole = {slot: subject.request(slot // 2) for slot in range(SLOTS)}
    return {
        slot: replace(asked, prompt=asked.prompt[:, : PROMPT - 37 * slot], key=slot, max_frames=FRAMES - slot)
        for slot, asked in whole.items()
    }


def speak(engine: Engine, asked: Mapping[int, Request], before: Spoken | None = None) -> Spoken:
    """Codes of each slot, all of which are there from the start, and go on behind what there is `before`."""
    made: Spoken = {slot: list((before or {}).get(slot, [])) for slot in asked}
    ended = set[int]()
    for slot, request in asked.items():
        engine.open(slot, request, np.array(made[slot], np.uint16).reshape(-1, engine.model.codes))
    while running := [slot for slot in asked if slot not in ended and len(made[slot]) < asked[slot].max_frames]:
        for frame in engine.step(running):
            made[frame.slot] += [tuple(frame.codes)] if frame.codes else []
            ended |= set() if frame.codes else {frame.slot}
    for slot in asked:
        engine.close(slot)
    engine.audit()
    return made


def codes_depend_on_nothing_but_the_request(subject: Subject) -> None:
    """Alone, resumed, and where pages are few, all by the recorded graph."""
    asked, engine = requests(subject), engine_of(subject.talker)
    together = speak(engine, asked)
    for slot, request in asked.items():
        assert speak(engine, {slot: request})[slot] == together[slot], f"request {slot} depends on its neighbours"
    for done in (1, 17):
        assert speak(engine, asked, {slot: codes[:done] for slot, codes in together.items()}) == together
    few = engine_of(subject.talker, pages=-(-(PROMPT + FRAMES) // 64) * 3)
    assert speak(few, asked) == together, "what was computed again is something else"


def plain_attention_speaks_too(subject: Subject) -> None:
    os.environ[SWITCH] = "off"
    try:
        asked, engine = requests(subject), engine_of(subject.talker)
        together = speak(engine, asked)
        assert all(together.values())
        assert speak(engine, {3: asked[3]})[3] == together[3]
    finally:
        del os.environ[SWITCH]


def codec_sounds_alike_in_pieces_and_beside_others(subject: Subject) -> None:
    """At most one unit of s16 apart."""
    decoder = subject.decoder
    torch.manual_seed(1)
    codes = [torch.stack([torch.randint(entries, (60,)) for entries in decoder.codebooks], 1) for _ in range(3)]
    whole = [in_pieces(decoder, [part], [60])[0] for part in codes]
    for pieces in ([1, 2, 4, 8, 16, 29], [25, 25, 10]):
        for heard, expected in zip(in_pieces(decoder, codes, pieces), whole, strict=True):
            apart = np.abs(heard.astype(np.int32) - expected.astype(np.int32)).max()
            assert apart <= 1, f"{pieces}: {apart} units apart"


def in_pieces(decoder: Decoder, codes: list[Tensor], pieces: list[int]) -> list[np.ndarray]:  # type: ignore[type-arg]
    streams, start, made = [decoder.streams.open() for _ in codes], 0, list[list[bytes]]()
    for length in pieces:
        parts = decoder(streams, [part[start : start + length] for part in codes])
        made.append([to_s16(samples) for samples in parts])
        start += length
    for stream in streams:
        decoder.streams.close(stream)
    return [np.frombuffer(b"".join(parts), "<i2") for parts in zip(*made, strict=True)]


CHECKS: list[Callable[[Subject], None]] = [
    codes_depend_on_nothing_but_the_request,
    plain_attention_speaks_too,
    codec_sounds_alike_in_pieces_and_beside_others,
]

if __name__ == "__main__":
    on_gpu = DEVICE.type == "cuda"
    if on_gpu and not is_available():
        raise SystemExit(f"the decode kernel cannot be loaded: {load_error()}")
    with torch.inference_mode():
        measured = import_module(f"speechmill.models.{FAMILY}.measure")
        family = measured.subject(SIZE, DEVICE, talker_dtype(DEVICE))
        for check in [kernel_is_softmax_attention] * on_gpu + CHECKS:
            check(family)
            print(f"{check.__name__.replace('_', ' ')}: yes", flush=True)  # noqa: T201
