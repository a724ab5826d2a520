"""What the tests say on a CPU, on a GPU: the kernel is softmax attention, and neighbours change no code."""

import numpy as np
import torch
from torch import Tensor

from speechmill.models.common.decode_attention import decode, is_available, load_error
from speechmill.models.common.engine.engine import Engine, EngineOptions
from speechmill.models.common.engine.model import Request
from speechmill.models.fish_speech.random import random_prompt, random_talker

CUDA = torch.device("cuda")
FRAMES = 40
SLOTS = 8


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


def check_kernel() -> None:
    """Of the released shape, over lengths on and beside the borders of pages and splits."""
    torch.manual_seed(0)
    lengths = [0, 1, 63, 64, 65, 500, 2048, 5000]
    each = -(-max(lengths) // 64)
    tables = torch.randperm(each * len(lengths), device=CUDA).view(len(lengths), each).int()
    for dtype, close in ((torch.float16, 2e-3), (torch.bfloat16, 2e-2)):
        query = torch.randn(len(lengths), 32, 128, device=CUDA).to(dtype)
        keys, values = (torch.randn(each * len(lengths), 64, 8, 128, device=CUDA).to(dtype) for _ in range(2))
        given = (query, keys, values, tables, torch.tensor(lengths, device=CUDA).int())
        torch.testing.assert_close(decode(*given), softmax_attention(*given), rtol=0, atol=close)


def speak(engine: Engine, asked: dict[int, Request]) -> dict[int, list[tuple[int, ...]]]:
    """Codes of each slot, all of which are there from the start."""
    made: dict[int, list[tuple[int, ...]]] = {slot: [] for slot in asked}
    for slot, request in asked.items():
        engine.open(slot, request, np.empty((0, engine.model.codes), np.uint16))
    while running := [slot for slot in asked if len(made[slot]) < asked[slot].max_frames]:
        for frame in engine.step(running):
            made[frame.slot].append(tuple(frame.codes))
    for slot in asked:
        engine.close(slot)
    return made


def check_neighbours() -> None:
    """Requests of several lengths together, and each alone, by the graph."""
    with torch.inference_mode():
        talker = random_talker("400m", CUDA, torch.bfloat16)
        engine = Engine(talker, EngineOptions(SLOTS))
        engine.capture()
        prompts = {slot: random_prompt(talker, 30 + 40 * slot, 20 * slot, slot).numpy() for slot in range(SLOTS)}
        asked = {
            slot: Request(prompt, slot, (0.8, 0.8, 30.0, 1.0), FRAMES - slot) for slot, prompt in prompts.items()
        }
        together = speak(engine, asked)
        for slot, request in asked.items():
            assert speak(engine, {slot: request})[slot] == together[slot], f"request {slot} depends on its neighbours"
        engine.audit()


if __name__ == "__main__":
    if not is_available():
        raise SystemExit(f"the decode kernel cannot be loaded: {load_error()}")
    for check in (check_kernel, check_neighbours):
        check()
        print(f"{check.__name__} passed")  # noqa: T201
