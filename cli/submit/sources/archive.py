"""A ZIP file from strangers: nothing is unpacked to disk, and sizes are bounded whatever it says of itself."""

import lzma
import zipfile
import zlib
from pathlib import Path

from speechmill.infra.errors import BadInput

MOST_ENTRIES = 20_000
MOST_BYTES = 32 << 20
"""Of one entry, unpacked."""
MOST_TOTAL_BYTES = 512 << 20
_BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    NotImplementedError,  # by zipfile, of a compression that it does not know
    RuntimeError,
    ValueError,
    LookupError,
    ArithmeticError,
)
"""All that `zipfile` raises for files that are not as they should be."""


class Archive:
    """A context manager. Raises BadInput for what is no ZIP file, OSError for one that cannot be read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._left = MOST_TOTAL_BYTES
        try:
            self._zip = zipfile.ZipFile(path)
        except _BROKEN as error:
            raise BadInput(f"{path}: it is no EPUB, or a broken one ({error})") from None
        self.names = frozenset(self._zip.namelist())
        if len(self.names) > MOST_ENTRIES:
            raise BadInput(f"{path}: it holds more than {MOST_ENTRIES} files")

    def __enter__(self) -> "Archive":
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()

    def read(self, name: str) -> bytes:
        """An entry. Raises BadInput where it is not there, too large or broken."""
        if name not in self.names:
            raise BadInput(f"{self.path}: {name} is missing in it")
        most = min(MOST_BYTES, self._left)
        try:
            with self._zip.open(name) as entry:
                content = entry.read(most + 1)
        except _BROKEN as error:
            raise BadInput(f"{self.path}: {name} in it cannot be read ({error})") from None
        if len(content) > most:
            raise BadInput(f"{self.path}: {name} in it is too large")
        self._left -= len(content)
        return content
