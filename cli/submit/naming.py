"""Names of result files: from a template, safe on any system, and never outside of the output."""

import hashlib
import re
import string
import unicodedata
from collections.abc import Mapping

from speechmill.infra.encode import EXTENSIONS
from speechmill.infra.errors import BadInput

DEFAULT = "{custom_id}.{ext}"
FIELDS = ("index", "custom_id", "source", "voice", "model", "ext")
OWN = frozenset({"manifest.jsonl", ".speechmill"})
"""What we put beside the results."""
MOST_BYTES = 255
"""Of one part of a path, on all common file systems."""
_VALUE_CHARS = 100
_UNSAFE = re.compile(r"[^\w.+-]+")
_INDEX_SPEC = re.compile(r"(?:0?\d)?\d?d?")
_DEVICES = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\..*)?", re.IGNORECASE)
"""Names that Windows keeps for itself."""


def check_template(template: str) -> None:
    """Raises BadInput for all but plain fields, of which only `index` may have a width."""
    try:
        parts = list(string.Formatter().parse(template))
    except ValueError as error:
        raise BadInput(f"--name-template: {error}") from None
    for _, name, spec, conversion in parts:
        if name is None:
            continue
        if name not in FIELDS or conversion:
            raise BadInput(f"--name-template: {{{name}}} is none of {', '.join(FIELDS)}")
        if spec and not (name == "index" and _INDEX_SPEC.fullmatch(spec)):
            raise BadInput(f"--name-template: only {{index}} has a width, such as {{index:05d}}, not {{{name}:{spec}}}")
    if {name for _, name, _, _ in parts}.isdisjoint({"index", "custom_id"}):
        raise BadInput("--name-template: without {index} or {custom_id} all files would have one name")


def extension_of(response_format: str) -> str:
    """Of the file; an unknown format is for the server to refuse."""
    asked = response_format.lower()
    return next((ending for name, ending in EXTENSIONS.items() if name == asked), "audio")


def file_name(template: str, values: Mapping[str, str | int]) -> str:
    """Relative, with `/` where the template has them. Raises BadInput for a name that no file can have."""
    safe = {name: value if isinstance(value, int) else clean(value) for name, value in values.items()}
    name = unicodedata.normalize("NFC", template.format_map(safe))
    for part in name.split("/"):
        if part in ("", ".", "..") or "\\" in part or not part.isprintable() or part != part.strip():
            raise BadInput(f"--name-template: {name!r} cannot be the name of a file")
        if len(part.encode()) > MOST_BYTES:
            raise BadInput(f"--name-template: {part[:60]!r}… is too long for the name of a file")
        if part.casefold() in OWN or _DEVICES.fullmatch(part):
            raise BadInput(f"--name-template: {part!r} is not free to be the name of a file")
    return name


def clean(value: str) -> str:
    """A user's text as a part of a file name; what is too long ends in a few digits of its SHA-256."""
    safe = _UNSAFE.sub("_", value).lstrip(".").rstrip(".") or "_"
    if len(safe) <= _VALUE_CHARS and len(safe.encode()) <= MOST_BYTES // 2:
        return safe
    short = safe.encode()[: _VALUE_CHARS - 9].decode(errors="ignore")
    return f"{short}-{hashlib.sha256(value.encode()).hexdigest()[:8]}"


def folded(name: str) -> str:
    """Equal for names that some file system takes for the same."""
    return unicodedata.normalize("NFC", name.casefold())
