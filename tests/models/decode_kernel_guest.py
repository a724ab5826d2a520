"""Checks of the decode kernel, for a process with Triton's interpreter on; `test_decode_attention` runs them."""

import os
from dataclasses import replace

import torch
from goldens import Goldens
from test_engine import CASES, engine_of, speak
from torch import Tensor

from speechmill.models.common.decode_attention import SWITCH, decode

torch.set_num_threads(1)


def softmax_attention(query: Tensor, keys: Tensor, values: Tensor, tables: Tensor, lengths: Tensor) -> Tensor:
    out = torch.zeros_like(query, dtype=torch.float64)
    group = query.shape[1] // keys.shape[2]
    for row, length in enumerate(lengths.tolist()):
        if length:
            pages = tables[row].long()
            seen = (part[pages].flatten(0, 1)[:length].double() for part in (keys, values))
            key, value = (part.repeat_interleave(group, 1) for part in seen)
            scores = torch.einsum("hd,lhd->hl", query[row].double(), key) / query.shape[-1] ** 0.5
            out[row] = torch.einsum("hl,lhd->hd", scores.softmax(-1), value)
    return out.to(query.dtype)


def case(heads: int, kv_heads: int, size: int, lengths: list[int], page: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Random tensors; every row has pages for the longest length, in no order."""
    torch.manual_seed(size)
    each = -(-max(lengths) // page)
    tables = torch.randperm(each * len(lengths)).view(len(lengths), each).int()
    pages = (each * len(lengths), page, kv_heads, size)
    query = torch.randn(len(lengths), heads, size).to(dtype)
    return query, torch.randn(pages).to(dtype), torch.randn(pages).to(dtype), tables, torch.tensor(lengths).int()


def goldens() -> None:
    stored = Goldens("fish_speech")
    names = ("q", "k_pages", "v_pages", "block_table", "lens")
    given = [stored.tensor(f"attn.{name}") for name in names]
    given = [part if part.is_floating_point() else part.int() for part in given]
    torch.testing.assert_close(decode(*given), stored.tensor("attn.out"), rtol=0, atol=1e-5)


def shapes() -> None:
    tolerances = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}
    for dtype, close in tolerances.items():
        for heads, kv_heads, size, page in ((16, 2, 128, 16), (6, 2, 24, 64)):
            given = case(heads, kv_heads, size, [0, 1, 64, 130], page, dtype)
            torch.testing.assert_close(decode(*given), softmax_attention(*given), rtol=0, atol=close)


def poison() -> None:
    """What lies beyond a length is never read."""
    query, keys, values, tables, lengths = case(8, 2, 16, [1, 16, 37, 70], 16, torch.float32)
    wanted = decode(query, keys, values, tables, lengths)
    for row, length in enumerate(lengths.tolist()):
        for place in range(length, tables.shape[1] * 16):
            page = int(tables[row, place // 16])
            keys[page, place % 16] = values[page, place % 16] = float("nan")
    assert torch.equal(decode(query, keys, values, tables, lengths), wanted)


def splits() -> None:
    given = case(4, 2, 32, [0, 5, 200], 16, torch.float32)
    for count in (1, 2, 3):
        torch.testing.assert_close(decode(*given, count), decode(*given, 4), rtol=0, atol=1e-6)


def engine() -> None:
    """A talker speaks by the kernel as it does without."""
    asked = replace(CASES[4], max_frames=2)
    fixed = engine_of(slots=2)
    fixed._runner._fixed = True  # as on a GPU: rows are filled up, and lengths stay on the device
    fixed._runner._graph = fixed._runner._step_on_device  # what a graph would record
    by_kernel = speak(fixed, [asked])
    os.environ[SWITCH] = "off"
    assert speak(engine_of(), [asked]) == by_kernel


if __name__ == "__main__":
    for check in (goldens, shapes, poison, splits, engine):
        check()
