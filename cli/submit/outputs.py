"""Where results go: a folder, or a prefix of a bucket. A file that is there is whole."""

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol
from urllib.parse import urlsplit

from speechmill.infra.errors import BadInput, StoreUnavailable

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

OWN = ".speechmill"
MANIFEST = "manifest.jsonl"
S3 = "s3://"


@dataclass(frozen=True, slots=True)
class Kept:
    """What was once written: `stamp` is what `keep` answered for it."""

    name: str
    bytes: int
    sha256: str
    stamp: int | None


class Output(Protocol):
    """Used by several threads."""

    work: Path
    """A folder of this machine for what is ours: state, manifest, files on their way."""

    def keep(self, name: str, part: Path, sha256: str, media_type: str) -> int:
        """Make a whole file of this machine the result of that name, in one step. Answers its stamp."""

    def lost(self, kept: Sequence[Kept]) -> list[str]:
        """Names of those that are not there, or not as they were."""

    def exist(self) -> Callable[[str], bool]:
        """Tells names at which something is, by now."""

    manifest: Path
    """Of this machine as well."""
    manifest_place: str
    """Where users find it."""

    def publish(self) -> None:
        """Put the manifest beside the results."""


@contextmanager
def part_file(output: Output) -> Iterator[tuple[BinaryIO, Path]]:
    """A file to write a result to; it is gone behind this, unless it was kept."""
    handle, name = tempfile.mkstemp(dir=_parts(output))
    try:
        with os.fdopen(handle, "wb") as file:
            yield file, Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


def clear_parts(output: Output) -> None:
    """Those of a call that was killed. Nobody else may be at work with the output."""
    for part in _parts(output).iterdir():
        part.unlink()


def _parts(output: Output) -> Path:
    folder = output.work / "parts"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def output_of(place: str, state_home: Path) -> Output:
    """Raises BadInput for a URL that names no bucket."""
    if place.startswith(S3):
        return Bucket(place, state_home)
    if "://" in place:
        raise BadInput(f"--out {place}: a folder, or s3://bucket/prefix")
    return Folder(Path(place))


class Folder:
    """Results on this machine."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.work = root / OWN
        self.manifest = root / MANIFEST
        self.manifest_place = str(self.manifest)

    def keep(self, name: str, part: Path, sha256: str, media_type: str) -> int:
        target = self.root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        part.chmod(0o666 & ~_UMASK)
        part.replace(target)
        return target.stat().st_mtime_ns

    def lost(self, kept: Sequence[Kept]) -> list[str]:
        """A file that was touched since is read again."""
        return [one.name for one in kept if not self._is_there(one)]

    def _is_there(self, one: Kept) -> bool:
        try:
            with (self.root / one.name).open("rb") as file:
                found = os.fstat(file.fileno())
                if found.st_size != one.bytes:
                    return False
                return found.st_mtime_ns == one.stamp or hashlib.file_digest(file, "sha256").hexdigest() == one.sha256
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return False

    def exist(self) -> Callable[[str], bool]:
        return lambda name: (self.root / name).exists()

    def publish(self) -> None:
        """It was written there."""


class Bucket:
    """Results in S3, with the user's own credentials. Raises StoreUnavailable from all that asks it.

    Whether a file is as it was is told by its size: a listing holds no more.
    """

    def __init__(self, url: str, state_home: Path) -> None:
        parts = urlsplit(url)
        if not parts.netloc or parts.query or parts.fragment:
            raise BadInput(f"--out {url}: it must be s3://bucket/prefix")
        self.url = url.rstrip("/")
        self.bucket, prefix = parts.netloc, parts.path.strip("/")
        self._prefix = f"{prefix}/" if prefix else ""
        self.work = state_home / "submit" / hashlib.sha256(self.url.encode()).hexdigest()[:16]
        self.manifest = self.work / MANIFEST
        self.manifest_place = f"{self.url}/{MANIFEST}"
        self._client = _s3_client()

    def keep(self, name: str, part: Path, sha256: str, media_type: str) -> int:
        told = {"ContentType": media_type, "Metadata": {"sha256": sha256}}
        with _store_errors(self.url):
            self._client.upload_file(str(part), self.bucket, self._prefix + name, ExtraArgs=told)
        return part.stat().st_size

    def lost(self, kept: Sequence[Kept]) -> list[str]:
        sizes = self._sizes() if kept else {}
        return [one.name for one in kept if sizes.get(one.name) != one.bytes]

    def exist(self) -> Callable[[str], bool]:
        return self._sizes().__contains__

    def _sizes(self) -> dict[str, int]:
        with _store_errors(self.url):
            pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=self._prefix)
            return {
                one["Key"].removeprefix(self._prefix): one["Size"] for page in pages for one in page.get("Contents", ())
            }

    def publish(self) -> None:
        told = {"ContentType": "application/x-ndjson"}
        with _store_errors(self.url):
            self._client.upload_file(str(self.manifest), self.bucket, self._prefix + MANIFEST, ExtraArgs=told)


def _s3_client() -> "S3Client":
    import boto3
    from botocore.config import Config

    endpoint = os.environ.get("SPEECHMILL_OUT_S3_ENDPOINT") or None
    style = {"addressing_style": "path"} if endpoint or os.environ.get("AWS_ENDPOINT_URL") else {}
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    config = Config(max_pool_connections=16, retries={"max_attempts": 5, "mode": "standard"}, s3=style)  # type: ignore[arg-type]
    return boto3.client("s3", endpoint_url=endpoint, region_name=region, config=config)


@contextmanager
def _store_errors(url: str) -> Iterator[None]:
    from boto3.exceptions import Boto3Error
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (Boto3Error, BotoCoreError, ClientError) as error:
        raise StoreUnavailable(f"{url}: {error}") from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


_UMASK = _umask()
"""Files that `tempfile` makes are for their owner alone; results are for whoever the user lets read."""
