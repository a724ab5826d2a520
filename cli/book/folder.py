"""The folder of a book that is not finished: all in it is ours, so that it may be deleted when the book is there."""

from pathlib import Path

from speechmill.cli.book.kinds import is_folder
from speechmill.cli.submit.outputs import OWN
from speechmill.infra.errors import BadInput

INSIDE = ".speechmill-book"
_MARK = "book"


def claim(out: Path) -> Path:
    """The work folder of a book, which is made where there is none. Raises BadInput for one that is not ours, OSError.

    `out` is resolved. The folder is on the disk of `out`, so that what is finished can be moved there in one step.
    """
    folder = out / INSIDE if is_folder(out) else out.with_name(f"{out.name}.work")
    mark = folder / OWN / _MARK
    if folder.is_dir() and any(folder.iterdir()) and not mark.exists():
        raise BadInput(f"{folder}: a book is made in a folder of this name, but this one holds other things; move it")
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.touch()
    return folder
