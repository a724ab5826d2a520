"""What the tests say on a CPU, on a GPU: the kernel is softmax attention, and neighbours change no code."""

import numpy as np
import torch
from torch import Tensor

from speechmill.models.common.decode_attention import decode, is_available, load_error
from speechmill.models.common.engine.engine import Engine, EngineOptions
from speechmill.models.common.engine.model import FrameModel, Request
from speechmill.models.fish_speech import random as fish
from speechmill.models.qwen3_tts import random as qwen

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
    running = set(asked)
    while running:
        for frame in engine.step(sorted(running)):
            made[frame.slot].append(tuple(frame.codes))
            if not frame.codes or len(made[frame.slot]) == asked[frame.slot].max_frames:
                running.remove(frame.slot)
    for slot in asked:
        engine.close(slot)
    return made


def fish_requests(talker: fish.Talker) -> list[Request]:
    """Of several lengths."""
    prompts = [fish.random_prompt(talker, 30 + 40 * slot, 20 * slot, slot).numpy() for slot in range(SLOTS)]
    settings = (0.8, 0.8, 30.0, 1.0)
    return [Request(prompt, slot, settings, FRAMES - slot) for slot, prompt in enumerate(prompts)]


def qwen_requests(talker: qwen.Talker) -> list[Request]:
    """The same, with text beside the frames that is longer or shorter than they are."""
    settings = (0.9, 1.0, 50.0, 1.05, 0.9, 1.0, 50.0)
    return [
        Request(
            qwen.random_prompt(talker, 30 + 40 * slot, 20 * slot, slot),
            slot,
            settings,
            FRAMES - slot,
            vectors=qwen.random_speaker(talker, slot),
            beside=tuple(range(10 * slot)),
            rest=talker.config.text.pad,
        )
        for slot in range(SLOTS)
    ]


def check_neighbours(talker: FrameModel, requests: list[Request]) -> None:
    """Requests together, and each alone, by the graph."""
    engine = Engine(talker, EngineOptions(SLOTS))
    engine.capture()
    together = speak(engine, dict(enumerate(requests)))
    for slot, request in enumerate(requests):
        assert speak(engine, {slot: request})[slot] == together[slot], f"request {slot} depends on its neighbours"
    engine.audit()


def main() -> None:
    if not is_available():
        raise SystemExit(f"the decode kernel cannot be loaded: {load_error()}")
    check_kernel()
    print("the kernel is softmax attention")  # noqa: T201
    with torch.inference_mode():
        of_fish = fish.random_talker("400m", CUDA, torch.bfloat16)
        check_neighbours(of_fish, fish_requests(of_fish))
        of_qwen = qwen.random_talker("0.6b", CUDA, torch.bfloat16)
        check_neighbours(of_qwen, qwen_requests(of_qwen))
    print("neighbours change no code")  # noqa: T201


if __name__ == "__main__":
    main()
