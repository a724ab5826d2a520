"""The processes of a farm, as the machine lists them."""

import subprocess
from collections.abc import Iterator


def descendants(pid: int) -> dict[int, str]:
    """Every process below `pid`, with its command line."""
    listed = subprocess.run(["ps", "-Ao", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    children: dict[int, list[tuple[int, str]]] = {}
    for line in listed.splitlines():
        own, parent, *command = line.split(maxsplit=2)
        children.setdefault(int(parent), []).append((int(own), "".join(command)))

    def below(parent: int) -> Iterator[tuple[int, str]]:
        for child, command in children.get(parent, ()):
            yield child, command
            yield from below(child)

    return dict(below(pid))
