"""Audio, references and archives in any S3. Nothing is ever overwritten: a key stands for its content.

Blocking and safe to share between threads; a process makes its own store, after any fork.
"""

import hashlib
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import quote, urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, ConnectionError, HTTPClientError, IncompleteReadError

from speechmill.infra.errors import FarmError, ObjectExists, StoreUnavailable

if TYPE_CHECKING:
    from botocore.response import StreamingBody
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import CompletedPartTypeDef

MULTIPART_BYTES = 64 << 20
"""Longer bodies are uploaded in parts."""
_MOST_PARTS = 10_000
_READ_BYTES = 256 << 10
_MOST_KEYS = 1000
_PLAIN_NAME = re.compile(r"[\w.-]+", re.ASCII)
_CONFIG = Config(
    # Without s3v4, presigned URLs are of a kind that not every store knows.
    signature_version="s3v4",
    s3={"addressing_style": "path"},
    retries={"mode": "standard", "max_attempts": 4},
    connect_timeout=3,
    read_timeout=30,
    max_pool_connections=32,
    request_checksum_calculation="when_required",
    response_checksum_validation="when_required",
)
_UNREACHABLE = (ConnectionError, HTTPClientError, IncompleteReadError)


class ObjectMissing(FarmError):
    code = "object_missing"


@dataclass(frozen=True, slots=True)
class Stored:
    key: str
    size_bytes: int
    sha256: str
    """Hexadecimal."""


@dataclass(frozen=True, slots=True)
class Found:
    key: str
    size_bytes: int
    modified_s: float
    """Unix time."""


@dataclass
class ObjectStore:
    """One bucket. Without keys or endpoint, boto3 looks where it always does.

    Every method may raise StoreUnavailable: the store does not answer, or refuses what it should not.
    """

    bucket: str
    endpoint_url: str = ""
    access_key: str = ""
    secret_key: str = field(default="", repr=False)
    region: str = "us-east-1"
    public_endpoint_url: str = ""
    """Where clients reach the store: a signature covers the host."""
    _client: "S3Client" = field(init=False, repr=False, compare=False)
    _public: "S3Client" = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._client = self._connect(self.endpoint_url)
        self._public = self._connect(self.public_endpoint_url or self.endpoint_url)

    def put_once(
        self, key: str, body: BinaryIO | bytes, content_type: str, metadata: Mapping[str, str] | None = None
    ) -> Stored:
        """Stores all of `body`, which must be seekable. The same content again is fine, other content ObjectExists.

        `metadata` is ASCII.
        """
        file = io.BytesIO(body) if isinstance(body, bytes) else body
        stored = _describe(key, file)
        described = {**(metadata or {}), "sha256": stored.sha256}
        with _mapped(key):
            try:
                if stored.size_bytes > MULTIPART_BYTES:
                    self._put_parts(stored, file, content_type, described)
                else:
                    self._client.put_object(
                        Bucket=self.bucket,
                        Key=key,
                        Body=file,
                        ContentType=content_type,
                        Metadata=described,
                        IfNoneMatch="*",
                    )
            except ClientError as error:
                # NoSuchUpload: the answer to an earlier "complete" was lost.
                if _code(error) not in ("PreconditionFailed", "NoSuchUpload"):
                    raise
                self._compare(stored)
        return stored

    def get(self, key: str, start: int = 0) -> Iterator[bytes]:
        """The object from byte `start` on. ObjectMissing is raised at once, StoreUnavailable also while reading."""
        body = self._open(key, f"bytes={start}-")
        return _pieces(key, body) if body else iter(())

    def read_range(self, key: str, start: int, end: int) -> bytes:
        """Bytes `start` to `end` (exclusive), fewer where the object ends before."""
        body = self._open(key, f"bytes={start}-{end - 1}") if end > start else None
        return b"".join(_pieces(key, body)) if body else b""

    def look_up(self, key: str) -> Stored:
        """What is there under a key; raises ObjectMissing. `sha256` is "" for what `put_once` did not put."""
        with _mapped(key):
            there = self._client.head_object(Bucket=self.bucket, Key=key)
        return Stored(key, there["ContentLength"], there["Metadata"].get("sha256", ""))

    def delete_many(self, keys: Sequence[str]) -> None:
        """A missing key counts as deleted."""
        for first in range(0, len(keys), _MOST_KEYS):
            some = keys[first : first + _MOST_KEYS]
            with _mapped(some[0]):
                answer = self._client.delete_objects(
                    Bucket=self.bucket, Delete={"Objects": [{"Key": key} for key in some], "Quiet": True}
                )
            if failed := [error for error in answer.get("Errors", []) if error.get("Code") != "NoSuchKey"]:
                raise StoreUnavailable(f"{len(failed)} objects were not deleted, the first for {failed[0].get('Code')}")

    def list_prefix(self, prefix: str) -> Iterator[Found]:
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix)
        with _mapped(prefix):
            for page in pages:
                for entry in page.get("Contents", []):
                    yield Found(entry["Key"], entry["Size"], entry["LastModified"].timestamp())

    def presign(self, key: str, seconds: int, filename: str, content_type: str) -> str:
        """A URL that anybody may GET for so long."""
        return self._public.generate_presigned_url(
            "get_object",
            Params={
                "Bucket": self.bucket,
                "Key": key,
                "ResponseContentDisposition": attachment(filename),
                "ResponseContentType": content_type,
            },
            ExpiresIn=seconds,
        )

    def ready(self) -> bool:
        """Whether the bucket is there and ours to use."""
        try:
            with _mapped(self.bucket):
                self._client.head_bucket(Bucket=self.bucket)
        except (ObjectMissing, StoreUnavailable):
            return False
        return True

    def _connect(self, endpoint_url: str) -> "S3Client":
        local = urlsplit(endpoint_url).hostname in ("127.0.0.1", "localhost", "::1")
        # The default session is not safe to share between threads while it makes clients.
        return boto3.session.Session().client(
            "s3",
            endpoint_url=endpoint_url or None,
            aws_access_key_id=self.access_key or None,
            aws_secret_access_key=self.secret_key or None,
            region_name=self.region,
            config=_CONFIG.merge(Config(proxies={})) if local else _CONFIG,
        )

    def _open(self, key: str, bytes_range: str) -> "StreamingBody | None":
        """None where the object ends before the range begins."""
        with _mapped(key):
            try:
                return self._client.get_object(Bucket=self.bucket, Key=key, Range=bytes_range)["Body"]
            except ClientError as error:
                if _code(error) != "InvalidRange":
                    raise
                return None

    def _put_parts(self, stored: Stored, file: BinaryIO, content_type: str, metadata: Mapping[str, str]) -> None:
        bucket, key, s3 = self.bucket, stored.key, self._client
        upload = s3.create_multipart_upload(Bucket=bucket, Key=key, ContentType=content_type, Metadata=metadata)[
            "UploadId"
        ]
        part_bytes = max(MULTIPART_BYTES // 4, -(-stored.size_bytes // _MOST_PARTS))
        parts: list[CompletedPartTypeDef] = []
        try:
            while data := file.read(part_bytes):
                number = len(parts) + 1
                part = s3.upload_part(Bucket=bucket, Key=key, UploadId=upload, PartNumber=number, Body=data)
                parts.append({"PartNumber": number, "ETag": part["ETag"]})
            s3.complete_multipart_upload(
                Bucket=bucket, Key=key, UploadId=upload, MultipartUpload={"Parts": parts}, IfNoneMatch="*"
            )
        except BaseException:
            with suppress(ClientError, *_UNREACHABLE):
                s3.abort_multipart_upload(Bucket=bucket, Key=key, UploadId=upload)
            raise

    def _compare(self, stored: Stored) -> None:
        if self.look_up(stored.key) != stored:
            raise ObjectExists(f"another object already has the key {stored.key}")


def attachment(filename: str) -> str:
    """`Content-Disposition` of a download under this name, in ASCII."""
    plain = _PLAIN_NAME.fullmatch(filename)
    return f'attachment; filename="{filename}"' if plain else f"attachment; filename*=UTF-8''{quote(filename, '')}"


def _describe(key: str, file: BinaryIO) -> Stored:
    file.seek(0)
    digest = hashlib.sha256()
    while data := file.read(_READ_BYTES):
        digest.update(data)
    size_bytes = file.tell()
    file.seek(0)
    return Stored(key, size_bytes, digest.hexdigest())


def _pieces(key: str, body: "StreamingBody") -> Iterator[bytes]:
    with _mapped(key), closing(body):
        yield from body.iter_chunks(_READ_BYTES)


def _code(error: ClientError) -> str:
    return error.response["Error"]["Code"]


@contextmanager
def _mapped(key: str) -> Iterator[None]:
    try:
        yield
    except _UNREACHABLE as error:
        raise StoreUnavailable(f"the object store does not answer: {error}") from error
    except BotoCoreError as error:
        raise StoreUnavailable(f"the object store cannot be used: {error}") from error
    except ClientError as error:
        if _code(error) in ("NoSuchKey", "404"):
            raise ObjectMissing(f"there is no object {key}") from error
        raise StoreUnavailable(f"the object store refuses {key}: {error}") from error
