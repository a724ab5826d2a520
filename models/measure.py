"""`python -m speechmill.models.measure FAMILY`: a family's speed with random weights. Needs PyTorch alone."""

import argparse
from collections.abc import Iterator, Sequence
from importlib import import_module, resources

import torch

from speechmill.models.common.device import usable_device
from speechmill.models.common.measure import Figure
from speechmill.models.stage import CannotLoad


def measure(family: str, size: str, device: str, batches: Sequence[int], threads: int) -> Iterator[Figure]:
    """`size`: "" for the family's own choice.

    Raises LookupError, in one line, for a family that measures nothing, or has no such size, and CannotLoad for a
    device that there is not.
    """
    if family not in (known := _families()):
        raise LookupError(f"{family!r} is no family that can be measured; those are: {', '.join(known)}")
    module = import_module(f"speechmill.models.{family}.measure")
    if size and size not in module.SIZES:
        raise LookupError(f"{family} has no size {size!r}; it has: {', '.join(module.SIZES)}")
    torch.set_num_threads(threads)
    yield from module.measure(size or module.SIZE, usable_device(device), batches)


def _families() -> list[str]:
    folders = resources.files("speechmill.models").iterdir()
    wanted = ("stages.py", "measure.py")
    return sorted(folder.name for folder in folders if all((folder / name).is_file() for name in wanted))


def _integers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("family")
    parser.add_argument("--size", default="", help="such as tiny; what there is is told for any other word")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batches", default=[1, 8, 64], type=_integers, help="sequences at once, comma separated")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="of the CPU")
    asked = parser.parse_args()
    try:
        for figure in measure(asked.family, asked.size, asked.device, asked.batches, asked.threads):
            print(figure, flush=True)  # noqa: T201  its one purpose
    except (LookupError, CannotLoad) as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
