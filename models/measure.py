"""`python -m speechmill.models.measure FAMILY`: a family's speed with random weights. Needs PyTorch alone."""

import argparse
from collections.abc import Iterator, Sequence
from importlib import import_module, util

import torch

from speechmill.models.common.measure import Figure


def measure(family: str, size: str, device: str, batches: Sequence[int], threads: int) -> Iterator[Figure]:
    """Raises LookupError, in one line, for a family that measures nothing, or has no such size."""
    name = f"speechmill.models.{family}.measure"
    if util.find_spec(f"speechmill.models.{family}") is None or util.find_spec(name) is None:
        raise LookupError(f"{family!r} is no family that can be measured")
    torch.set_num_threads(threads)
    try:
        yield from import_module(name).measure(size, torch.device(device), batches)
    except KeyError as error:
        raise LookupError(f"{family} has no size {error}") from None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("family")
    parser.add_argument("--size", default="400m", help="tiny, 400m or full; of qwen3_tts tiny, 0.6b or 1.7b")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batches", default="1,8,64", help="sequences at once, comma separated")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="of the CPU")
    asked = parser.parse_args()
    batches = [int(batch) for batch in asked.batches.split(",")]
    for figure in measure(asked.family, asked.size, asked.device, batches, asked.threads):
        print(figure, flush=True)  # noqa: T201  its one purpose


if __name__ == "__main__":
    main()
